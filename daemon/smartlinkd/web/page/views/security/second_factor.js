// The second factor: on with a QR code and a check that the app works, off with a code.

import { html, useState } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { t } from "../../lib/i18n.js";
import { Action, Copy, Submit, useAction } from "../../components/action.js";
import { Badge, Section } from "../../components/text.js";
import { CodeField } from "./code_field.js";

export function SecondFactor({ isOn, onChange }) {
  const [setup, setSetup] = useState(null);
  const badge = html`<${Badge} kind=${isOn ? "success" : "pending"}>${t(isOn ? "mfa.on" : "mfa.off")}<//>`;
  const begin = async () => setSetup(await ask("api/auth/2fa/setup"));
  const changed = () => {
    setSetup(null);
    onChange();
  };
  return html`
    <${Section} title=${t("mfa.title")} beside=${badge}>
      <p>${t(isOn ? "mfa.on.text" : "mfa.off.text")}</p>
      ${isOn && html`<${WithCode} path="disable" text=${t("mfa.turnOff")} kind="danger" onDone=${changed} />`}
      ${!isOn && !setup && html`<div class="actions"><${Action} onAct=${begin}>${t("mfa.begin")}<//></div>`}
      ${!isOn && setup && html`<${Setup} setup=${setup} onDone=${changed} onCancel=${() => setSetup(null)} />`}
    <//>
  `;
}

function Setup({ setup, onDone, onCancel }) {
  return html`
    <ol class="steps">
      <li>
        <p>${t("mfa.scan")}</p>
        <img class="qr" src=${setup.qrCode} alt=${t("mfa.qr")} width="220" height="220" />
        <details>
          <summary>${t("mfa.byHand")}</summary>
          <p class="secret-line"><code>${setup.secret}</code> <${Copy} text=${setup.secret} /></p>
        </details>
      </li>
      <li>
        <p>${t("mfa.check")}</p>
        <${WithCode} path="enable" secret=${setup.secret} text=${t("mfa.turnOn")} onDone=${onDone} />
      </li>
    </ol>
    <div class="actions"><button type="button" class="quiet" onClick=${onCancel}>${t("cancel")}</button></div>
  `;
}

function WithCode({ path, secret, text, kind, onDone }) {
  const [code, setCode] = useState("");
  const action = useAction(async () => {
    await ask(`api/auth/2fa/${path}`, { body: { code, ...(secret && { secret }) } });
    onDone();
  });
  return html`
    <form class="narrow" onSubmit=${action.submit}>
      <${CodeField} value=${code} onValue=${setCode} />
      <div class="actions"><${Submit} action=${action} kind=${kind}>${text}<//></div>
    </form>
  `;
}
