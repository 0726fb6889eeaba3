// System: the daemon's parts, its browser, a day of measurements, and its log.

import { html } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { duration, number, t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { Ago, Badge, Facts, Section, Title, Waiting } from "../../components/text.js";
import { Log } from "./log.js";
import { Plots } from "./plots.js";

const EVERY = 5; // seconds
const GOOD = ["running", "ready"];

export default function System() {
  const { data, fault, reload } = usePolled((abort) => ask("api/status", { signal: abort }), EVERY);
  if (!data) return html`<${Title} text=${t("system.title")} /><${Waiting} fault=${fault} reload=${reload} />`;
  return html`
    <${Title} text=${t("system.title")} />
    <${Facts} rows=${[
      [t("system.version"), data.version],
      [t("system.started"), html`<${Ago} at=${data.startedAt} />`],
      [t("system.waiting"), data.conversion && number(data.conversion.requestsWaiting)],
      [t("system.submits"), data.conversion && number(data.conversion.submitsWaiting)],
      [t("system.remembered"), data.conversion && number(data.conversion.rememberedLinks)],
      [t("system.api"), html`<a href="../docs">${t("system.docs")}</a>`],
    ]} />
    <${Plots} />
    <${Parts} actors=${data.actors} />
    ${data.browser && html`<${Browser} browser=${data.browser} />`}
    <${Log} />
  `;
}

function Parts({ actors }) {
  return html`
    <${Section} title=${t("system.parts")}>
      <div class="wide-table" tabindex="0" role="group" aria-label=${t("system.parts")}>
        <table>
          <thead>
            <tr>${["part", "state", "since", "restarts", "error"].map((name) => html`<th scope="col" key=${name}>${t(`system.${name}`)}</th>`)}</tr>
          </thead>
          <tbody>
            ${actors.map(
              (part) => html`
                <tr key=${part.name}>
                  <th scope="row">${part.name}</th>
                  <td><${State} word=${part.state} />${part.nextRetry !== null && html` <span class="faint">${t("system.retry", { time: duration(part.nextRetry) })}</span>`}</td>
                  <td><${Ago} at=${part.since} /></td>
                  <td>${number(part.restarts)}</td>
                  <td class="faint">${part.lastError ?? ""}</td>
                </tr>
              `,
            )}
          </tbody>
        </table>
      </div>
    <//>
  `;
}

function State({ word }) {
  return html`<${Badge} kind=${GOOD.includes(word) ? "success" : "failed"}>${word.replaceAll("_", " ")}<//>`;
}

function Browser({ browser }) {
  return html`
    <${Section} title=${t("system.browser")} beside=${html`<${State} word=${browser.state} />`}>
      <${Facts} rows=${[
        [t("system.version"), browser.version],
        [t("system.since"), html`<${Ago} at=${browser.since} />`],
        [t("system.restarts"), number(browser.restarts)],
        [t("system.lastRestart"), browser.lastRestartReason],
        [t("system.jobs"), t("system.jobsNow", { running: browser.jobsRunning, waiting: browser.jobsWaiting })],
        [t("system.contexts"), number(browser.contexts)],
      ]} />
    <//>
  `;
}
