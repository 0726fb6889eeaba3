// Where a crew is, who may call it, and how.

import { html, useState } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { Action, Copy } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { Badge, Block, Faint, Section } from "../../components/text.js";
import { MASK, commands } from "./commands.js";

const EVERY = 5; // seconds

export function Status({ crew }) {
  return html`
    <${Health} crew=${crew} />
    <${Section} title=${t("crew.addresses")}>
      <ul class="plain rows">
        ${crew.addresses().map((address) => html`<li key=${address}><code>${address}</code> <${Copy} text=${address} label=${t("crew.copy", { what: address })} /></li>`)}
      </ul>
    <//>
    <${Section} title=${t("crew.tokens")}>
      <${Faint}>${t("crew.tokens.text")}<//>
      <ul class="plain rows">
        <${Token} crew=${crew} user="" title=${t("crew.organization")} text=${t("crew.organization.text")} />
        ${crew.entry.users.map((user) => html`<${Token} key=${user} crew=${crew} user=${user} title=${t("crew.user", { user })} text=${t("crew.user.text")} />`)}
      </ul>
    <//>
    <${Section} title=${t("crew.commands")}>
      ${commands(crew).map(
        ([name, text, copied]) => html`
          <div key=${name} class="titled"><h3>${t(`crew.command.${name}`)}</h3><${Copy} text=${copied ?? text} label=${t("crew.copy", { what: t(`crew.command.${name}`) })} /></div>
          <${Block} name=${t(`crew.command.${name}`)}>${text}<//>
        `,
      )}
      <${Faint}>${t("crew.commands.text")}<//>
    <//>
  `;
}

function Health({ crew }) {
  const { data, fault } = usePolled((abort) => healthOf(crew, abort), EVERY, [crew.name]);
  const shown = data ?? (fault && { isGood: false, text: fault.message });
  return html`
    <${Section} title=${t("crew.health")}>
      <p role="status">
        ${!shown && t("loading")}
        ${shown?.isGood && html`<${Badge} kind="success">${shown.text}<//>`}
        ${shown && !shown.isGood && html`<${Badge} kind="failed">${t("crew.unhealthy")}<//> ${shown.text}`}
      </p>
    <//>
  `;
}

async function healthOf(crew, abort) {
  try {
    return { isGood: true, text: await crew.healthy(abort) };
  } catch (fault) {
    if (!fault.status) throw fault;
    return { isGood: false, text: fault.message };
  }
}

function Token({ crew, user, title, text }) {
  const [token, setToken] = useState("");
  const reveal = async () => setToken(token ? "" : await crew.token(user));
  const rotate = async () => {
    const question = { title: t("crew.rotate.title", { title }), text: t("crew.rotate.text"), yes: t("crew.rotate") };
    if (await confirm(question)) setToken(await crew.rotate(user));
  };
  return html`
    <li>
      <div>
        <h3>${title}</h3>
        <p class="faint">${text}</p>
        <code class="token">${token || MASK}</code>
      </div>
      <div class="actions">
        <${Action} kind="quiet" label=${t(token ? "crew.hideOne" : "crew.revealOne", { title })} onAct=${reveal}>${t(token ? "crew.hide" : "crew.reveal")}<//>
        <${Copy} text=${() => crew.token(user)} label=${t("crew.copy", { what: title })} />
        <${Action} kind="quiet" label=${t("crew.rotate.title", { title })} onAct=${rotate}>${t("crew.rotate")}<//>
      </div>
    </li>
  `;
}
