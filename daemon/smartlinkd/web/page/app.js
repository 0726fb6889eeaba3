// The frame around the views: navigation, language, log-out, and which view is shown.

import { html, signal, useEffect, useState } from "./lib/ui.js";
import { ask, ended, send, session } from "./lib/api.js";
import { LANGUAGES, language, setLanguage, t } from "./lib/i18n.js";
import { trouble } from "./lib/polling.js";
import { placeOf, route } from "./lib/router.js";
import { Action } from "./components/action.js";
import { Confirm } from "./components/confirm.js";
import { Icon } from "./components/icon.js";
import { Problem, Title } from "./components/text.js";
import { account, watchAccount } from "./views/account/state.js";
import { Convert } from "./views/convert/index.js";
import { Login } from "./views/login/index.js";

// Views but for the first are loaded when they are shown.
const VIEWS = {
  convert: { load: async () => ({ default: Convert }) },
  history: { load: () => import("./views/history/index.js") },
  account: { load: () => import("./views/account/index.js") },
  crews: { load: () => import("./views/crews/index.js") },
  system: { load: () => import("./views/system/index.js") },
  security: { load: () => import("./views/security/index.js") },
};
const loaded = signal({ convert: Convert });

export function App() {
  useEffect(() => {
    ask("api/status").catch((fault) => {
      // Anything but a refusal is the views' to tell.
      if (session.value === "unknown" && fault.status !== 0) session.value = "in";
      else if (session.value === "unknown") session.value = "offline";
    });
  }, []);
  return html`
    <a class="skip" href="#main" onClick=${skip}>${t("skip")}</a>
    <${Header} />
    ${trouble.value && html`<p class="trouble" role="status">${trouble.value}</p>`}
    <main id="main" tabindex="-1"><${Content} /></main>
    <${Confirm} />
  `;
}

function skip(event) {
  event.preventDefault(); // the address behind `#` is the place within the page
  document.querySelector("#main").focus();
}

function Content() {
  if (session.value === "unknown") return html`<p class="faint" role="status">${t("loading")}</p>`;
  if (session.value === "offline") return html`<${Offline} />`;
  const isOut = session.value === "out";
  const name = route.value.steps[0] ?? "convert";
  // A session that ended by itself takes nothing away that was typed.
  return html`
    ${isOut && html`<${Login} />`}
    ${(!isOut || ended.value) && html`<div hidden=${isOut}><${View} key=${name} name=${name} /></div>`}
  `;
}

function View({ name }) {
  const [fault, setFault] = useState(null);
  const Shown = loaded.value[name];
  useEffect(() => {
    if (Shown || !Object.hasOwn(VIEWS, name)) return;
    VIEWS[name]
      .load()
      .then((module) => (loaded.value = { ...loaded.value, [name]: module.default }))
      .catch(setFault);
  }, [name]);
  if (!Object.hasOwn(VIEWS, name)) return html`<${Title} text=${t("notFound")} /><p><a href=${placeOf()}>${t("nav.convert")}</a></p>`;
  if (fault) return html`<${Stale} />`;
  return Shown ? html`<${Shown} />` : html`<p class="faint" role="status">${t("loading")}</p>`;
}

// A view's file could not be loaded: no network, or the daemon is of another version by now.
function Stale() {
  return html`
    <${Problem} text=${t("error.stale")}>
      <button type="button" onClick=${() => location.reload()}>${t("reload")}</button>
    <//>
  `;
}

function Offline() {
  useEffect(() => {
    const timer = setInterval(() => ask("api/status").catch(() => {}), 2000);
    return () => clearInterval(timer);
  }, []);
  return html`<${Problem} text=${t("error.tryingAgain", { why: t("error.unreachable") })} />`;
}

function Header() {
  const isIn = session.value === "in";
  return html`
    <header>
      <a class="brand" href=${placeOf("convert")}><img src="icon.svg" alt="" width="24" height="24" /><span>smartlinkd</span></a>
      ${isIn && html`<${Navigation} />`}
      <div class="beside-nav">
        <label class="language">
          <span class="away">${t("language")}</span>
          <select value=${language.value} onChange=${(event) => setLanguage(event.target.value)}>
            ${Object.entries(LANGUAGES).map(([code, text]) => html`<option key=${code} value=${code} lang=${code} selected=${code === language.value}>${text}</option>`)}
          </select>
        </label>
        ${isIn && html`<${Action} kind="quiet" onAct=${logOut}>${t("logOut")}<//>`}
      </div>
    </header>
  `;
}

function Navigation() {
  useEffect(watchAccount, []);
  const here = route.value.steps[0] ?? "convert";
  return html`
    <nav class="views" aria-label=${t("nav")}>
      ${Object.keys(VIEWS).map(
        (name) => html`
          <a key=${name} href=${placeOf(name)} aria-current=${name === here ? "page" : undefined}>
            <${Icon} name=${name} />
            <span>${t(`nav.${name}`)}</span>
            ${name === "account" && account.value?.needsCare && html`<span class="dot" role="img" aria-label=${t("account.needsCare")}></span>`}
          </a>
        `,
      )}
    </nav>
  `;
}

async function logOut() {
  const response = await send("api/auth/logout", { method: "POST" });
  if (!response.ok && response.status !== 403) throw new Error(t("error.logOut"));
  ended.value = "";
  session.value = "out";
}
