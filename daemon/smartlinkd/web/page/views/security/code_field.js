// The field for a code of the authenticator app.

import { html } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { TextField } from "../../components/field.js";

export function CodeField({ value, onValue }) {
  return html`
    <${TextField} label=${t("login.code")} hint=${t("login.codeHint")} value=${value} onValue=${onValue}
      inputmode="numeric" autocomplete="one-time-code" maxlength="16" />
  `;
}
