// Security: the second factor, sessions, and keys for programs.

import { html } from "../../lib/ui.js";
import { ask, session } from "../../lib/api.js";
import { t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { Action } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { Section, Title, Waiting } from "../../components/text.js";
import { Keys } from "./keys.js";
import { SecondFactor } from "./second_factor.js";

export default function Security() {
  const { data, fault, reload } = usePolled((abort) => ask("api/status", { signal: abort }), 0);
  if (!data) return html`<${Title} text=${t("security.title")} /><${Waiting} fault=${fault} reload=${reload} />`;
  return html`
    <${Title} text=${t("security.title")} />
    <${SecondFactor} isOn=${data.secondFactor} onChange=${reload} />
    <${Keys} isCodeNeeded=${data.secondFactor} />
    <${Section} title=${t("sessions.title")}>
      <p>${t("sessions.text")}</p>
      <div class="actions">
        <${Action} kind="danger" onAct=${() => endAll(false)}>${t("sessions.end")}<//>
        <${Action} kind="danger" onAct=${() => endAll(true)}>${t("sessions.endWithKeys")}<//>
      </div>
    <//>
  `;
}

async function endAll(withKeys) {
  const question = {
    title: t("sessions.end.title"),
    text: t(withKeys ? "sessions.end.textWithKeys" : "sessions.end.text"),
    yes: t("sessions.end.yes"),
  };
  if (!(await confirm(question))) return;
  await ask("api/auth/revoke", { body: { keys: withKeys } });
  session.value = "out";
}
