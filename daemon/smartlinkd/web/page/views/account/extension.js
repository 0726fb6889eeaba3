// Pairing the browser extension, step by step.

import { html, useState } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { t } from "../../lib/i18n.js";
import { siteSetting } from "../../lib/site.js";
import { Copy, Submit, useAction } from "../../components/action.js";
import { Section } from "../../components/text.js";
import { CodeField } from "../security/code_field.js";

const SCOPES = ["cookie:write", "status", "convert"];
const FILES = { chromium: "../extension/smartlinkd-chromium.zip", firefox: "../extension/smartlinkd-firefox.zip" };

// What the extension takes: "smartlinkd-pair:" and base64url of JSON.
function pairingText(key) {
  const given = { url: new URL("../", document.baseURI).href.replace(/\/$/, ""), key, shop: siteSetting("shop"), portal: siteSetting("portal") };
  return `smartlinkd-pair:${btoa(JSON.stringify(given)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

// Where the extension takes the address: its `isSafe` in pairing.js.
function isSafe() {
  return location.protocol === "https:" || ["localhost", "127.0.0.1"].includes(location.hostname);
}

export function Extension() {
  const [key, setKey] = useState("");
  const [code, setCode] = useState("");
  const [isCodeAsked, askCode] = useState(false);
  const action = useAction(async () => {
    const { secondFactor } = await ask("api/status");
    if (secondFactor && !isCodeAsked) {
      askCode(true);
      return;
    }
    const body = { name: t("extension.keyName"), scopes: SCOPES, ...(secondFactor && { code }) };
    setKey((await ask("api/keys", { body })).key);
    askCode(false);
    setCode("");
  });
  return html`
    <${Section} title=${t("extension.title")}>
      <p>${t("extension.text")}</p>
      ${!isSafe() && html`<p class="hint">${t("extension.plainHttp")}</p>`}
      <ol class="steps">
        <li>
          <p>${t("extension.get")}</p>
          <p class="actions">
            ${Object.entries(FILES).map(([name, address]) => html`<a class="button quiet" key=${name} href=${address} download>${t(`extension.${name}`)}</a>`)}
          </p>
        </li>
        <li><p>${t("extension.install")}</p></li>
        <li>
          <p>${t("extension.pair")}</p>
          ${key
            ? html`<p class="secret-line"><code>${pairingText(key)}</code> <${Copy} text=${pairingText(key)} /></p><p class="faint">${t("keys.once")}</p>`
            : html`
                <form onSubmit=${action.submit}>
                  ${isCodeAsked && html`<${CodeField} value=${code} onValue=${setCode} />`}
                  <div class="actions"><${Submit} action=${action}>${t("extension.makeKey")}<//></div>
                </form>
              `}
        </li>
        <li><p>${t("extension.logIn")}</p></li>
      </ol>
    <//>
  `;
}
