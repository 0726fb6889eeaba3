// Keys for programs: made, shown once, and revoked.

import { html, useState } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { moment, t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { Action, Copy, Submit, useAction } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { TextField } from "../../components/field.js";
import { Ago, Faint, Section, Waiting } from "../../components/text.js";
import { CodeField } from "./code_field.js";

const SCOPES = ["convert", "cookie:write", "cookie:read", "history", "status", "account", "metrics", "crews"];

export function Keys({ isCodeNeeded }) {
  const { data, fault, reload } = usePolled((abort) => ask("api/keys", { signal: abort }), 0);
  const [made, setMade] = useState(null);
  const keep = (answer) => {
    setMade(answer);
    reload();
  };
  return html`
    <${Section} title=${t("keys.title")}>
      <p>${t("keys.text")}</p>
      ${made && html`
        <div class="shown-once" role="status">
          <p>${t("keys.made", { name: made.name })} ${t("keys.once")}</p>
          <p class="secret-line"><code>${made.key}</code> <${Copy} text=${made.key} /></p>
        </div>
      `}
      ${data ? html`<${List} keys=${data.keys} reload=${reload} />` : html`<${Waiting} fault=${fault} reload=${reload} />`}
      <${Make} isCodeNeeded=${isCodeNeeded} onMade=${keep} />
    <//>
  `;
}

function List({ keys, reload }) {
  if (!keys.length) return html`<${Faint}>${t("keys.none")}<//>`;
  const revoke = async ({ id, name }) => {
    const question = { title: t("keys.revoke.title", { name }), text: t("keys.revoke.text"), yes: t("keys.revoke") };
    if (!(await confirm(question))) return;
    await ask(`api/keys/${encodeURIComponent(id)}`, { method: "DELETE" });
    reload();
  };
  return html`
    <ul class="plain rows">
      ${keys.map(
        (each) => html`
          <li key=${each.id}>
            <div>
              <h3>${each.name} <code class="faint">…${each.hint}</code></h3>
              <p>${each.scopes.join(", ")}</p>
              <p class="faint">
                ${t("keys.created", { at: moment(each.createdAt) })} ·
                ${" "}${each.expiresAt ? t("keys.expires", { at: moment(each.expiresAt) }) : t("keys.noExpiry")} ·
                ${" "}${each.lastUsedAt ? html`${t("keys.used")} <${Ago} at=${each.lastUsedAt} />` : t("keys.unused")}
              </p>
            </div>
            <${Action} kind="danger" label=${t("keys.revoke.title", { name: each.name })} onAct=${() => revoke(each)}>${t("keys.revoke")}<//>
          </li>
        `,
      )}
    </ul>
  `;
}

function Make({ isCodeNeeded, onMade }) {
  const empty = { name: "", scopes: [], days: "", code: "" };
  const [typed, setTyped] = useState(empty);
  const change = (name) => (value) => setTyped({ ...typed, [name]: value });
  const toggle = (scope) => change("scopes")(typed.scopes.includes(scope) ? typed.scopes.filter((each) => each !== scope) : [...typed.scopes, scope]);
  const action = useAction(async () => {
    if (!typed.name.trim()) throw new Error(t("keys.nameMissing"));
    if (!typed.scopes.length) throw new Error(t("keys.scopeMissing"));
    const body = { name: typed.name.trim(), scopes: typed.scopes };
    if (typed.days) body.expiresInDays = Number(typed.days);
    if (isCodeNeeded) body.code = typed.code;
    onMade(await ask("api/keys", { body }));
    setTyped(empty);
  });
  return html`
    <details class="make">
      <summary>${t("keys.make")}</summary>
      <form onSubmit=${action.submit}>
        <${TextField} label=${t("keys.name")} hint=${t("keys.nameHint")} value=${typed.name} onValue=${change("name")} maxlength="60" />
        <fieldset>
          <legend>${t("keys.scopes")}</legend>
          ${SCOPES.map(
            (scope) => html`
              <label class="check" key=${scope}>
                <input type="checkbox" checked=${typed.scopes.includes(scope)} onChange=${() => toggle(scope)} />
                <span><code>${scope}</code> <span class="faint">${t(`keys.scope.${scope}`)}</span></span>
              </label>
            `,
          )}
        </fieldset>
        <${TextField} label=${t("keys.days")} hint=${t("keys.daysHint")} type="number" min="1" max="3650" value=${typed.days} onValue=${change("days")} />
        ${isCodeNeeded && html`<${CodeField} value=${typed.code} onValue=${change("code")} />`}
        <div class="actions"><${Submit} action=${action}>${t("keys.go")}<//></div>
      </form>
    </details>
  `;
}
