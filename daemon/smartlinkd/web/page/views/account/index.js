// Account: how it stands, the cookie, and how to give a new one.

import { html, useEffect, useState } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { moment, t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { siteSetting } from "../../lib/site.js";
import { Action, Submit, useAction } from "../../components/action.js";
import { Field, TextField } from "../../components/field.js";
import { Ago, Badge, Facts, Faint, Section, Title, Waiting } from "../../components/text.js";
import { account, answer, refreshAccount } from "./state.js";
import { Extension } from "./extension.js";

const EVERY = 5; // seconds
const KINDS = { none: "pending", unused: "running", active: "success", session_lost: "failed", paused: "failed" };

export default function Account() {
  const { fault, reload } = usePolled(refreshAccount, EVERY);
  if (!answer.value) return html`<${Title} text=${t("account.title")} /><${Waiting} fault=${fault} reload=${reload} />`;
  return html`
    <${Title} text=${t("account.title")} />
    <${Standing} />
    <${Cookie} cookie=${answer.value.cookie} />
    <${Extension} />
    <${PasteBox} />
  `;
}

function Standing() {
  const { kind, since, reason, remedy, name } = account.value;
  const clear = async () => {
    await ask("api/account/clear", { method: "POST" });
    await refreshAccount();
  };
  return html`
    <${Section} title=${t("account.state")} beside=${html`<${Badge} kind=${KINDS[kind]}>${t(`account.${kind}`)}<//>`}>
      <p>${t(`account.${kind}.short`)}</p>
      <${Facts} rows=${[
        [t("account.name"), name],
        [t("account.since"), since && html`<${Ago} at=${since} />`],
        [t("account.why"), reason, "wide"],
      ]} />
      ${kind !== "active" && html`<p class="todo">${t(`account.${kind}.todo`)}</p>`}
      ${remedy && html`<details><summary>${t("account.daemonSays")}</summary><p lang="en">${remedy}</p></details>`}
      ${kind === "paused" && html`
        <div class="actions">
          <a class="button" href=${siteSetting("portal")} target="_blank" rel="noreferrer">${t("account.openPortal")}</a>
          <${Action} kind="quiet" onAct=${clear}>${t("account.clear")}<//>
        </div>
      `}
    <//>
  `;
}

function Cookie({ cookie }) {
  if (!cookie.stored) return null;
  const missing = cookie.missing ?? [];
  return html`
    <${Section} title=${t("cookie.title")}>
      <${Facts} rows=${[
        [t("cookie.name"), cookie.accountName],
        [t("cookie.synced"), html`<${Ago} at=${cookie.syncedAt} /> <span class="faint">${moment(cookie.syncedAt)}</span>`],
        [t("cookie.missing"), missing.length ? html`<code>${missing.join(", ")}</code>` : t("cookie.nothingMissing")],
      ]} />
      ${missing.length > 0 && html`<${Faint}>${t("cookie.missing.todo")}<//>`}
    <//>
  `;
}

// The pasted cookie is sent and forgotten: it is in no storage, and is not shown again.
function PasteBox() {
  const [typed, setTyped] = useState({ cookie: "", accountName: "" });
  const [isStored, setStored] = useState(false);
  useEffect(() => () => setTyped({ cookie: "", accountName: "" }), []);
  const change = (name) => (value) => {
    setStored(false);
    setTyped((before) => ({ ...before, [name]: value }));
  };
  const action = useAction(async () => {
    if (!typed.cookie.trim()) throw new Error(t("paste.empty"));
    const accountName = typed.accountName.trim();
    await ask("api/sync-cookie", { body: { cookie: typed.cookie, ...(accountName && { accountName }) } });
    setTyped({ cookie: "", accountName: "" });
    setStored(true);
    await refreshAccount();
  });
  return html`
    <${Section} title=${t("paste.title")}>
      <p>${t("paste.text")}</p>
      <form onSubmit=${action.submit} autocomplete="off">
        <${Field} label=${t("paste.cookie")} hint=${t("paste.hint")}>
          ${(attributes) => html`
            <textarea ...${attributes} rows="4" class="secret" autocomplete="off" autocapitalize="off" spellcheck="false"
              value=${typed.cookie} onInput=${(event) => change("cookie")(event.target.value)}></textarea>
          `}
        <//>
        <${TextField} label=${t("paste.name")} hint=${t("paste.nameHint")} value=${typed.accountName} maxlength="100" onValue=${change("accountName")} />
        <div class="actions"><${Submit} action=${action}>${t("paste.go")}<//></div>
        ${isStored && html`<p class="good" role="status">${t("paste.stored")}</p>`}
      </form>
    <//>
  `;
}
