// What is said of a crew beside its name.

import { html } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { Badge } from "../../components/text.js";

export function Marks({ entry }) {
  return html`
    ${entry.default && html`<${Badge} kind="plain">${t("crews.default")}<//>`}
    ${entry.problems.length > 0 && html`<${Badge} kind="failed">${t("crews.broken")}<//>`}
  `;
}
