// How far a conversion has come, and what keeps it from going on.

import { html, useEffect, useState } from "../../lib/ui.js";
import { duration, t } from "../../lib/i18n.js";
import { placeOf } from "../../lib/router.js";
import { Action } from "../../components/action.js";
import { Problem } from "../../components/text.js";
import { done, failed, isKept, isRunning, job, left, problem, retry, run, stop, timeLeft, waiting } from "./job.js";

export function Progress() {
  if (!job.value) return null;
  const all = job.value.links.length;
  return html`
    <section class="progress" aria-label=${t("progress.title")}>
      <progress max=${all} value=${done.value} aria-label=${t("progress.title")}></progress>
      <div class="actions">
        <p role="status">${isRunning.value ? html`<${Running} all=${all} />` : standing(all)}</p>
        ${isRunning.value && html`<${Action} kind="quiet" onAct=${stop}>${t("progress.stop")}<//>`}
        ${!isRunning.value && left.value.length > 0 && html`<${Action} onAct=${() => run(left.value)}>${t("progress.goOn")}<//>`}
        ${failed.value.length > 0 && html`<${Action} kind="quiet" onAct=${() => retry(failed.value)}>${t("progress.retry", { count: failed.value.length })}<//>`}
      </div>
      ${waiting.value && html`<p class="hint" role="status">${waiting.value}</p>`}
      ${problem.value && html`<${Ended} fault=${problem.value} />`}
      ${!isKept.value && html`<p class="hint">${t("progress.notKept")}</p>`}
    </section>
  `;
}

function Running({ all }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = timeLeft();
  const text = t("progress.running", { done: done.value, all });
  return seconds === null || seconds < 1 ? text : `${text} · ${t("progress.timeLeft", { time: duration(Math.ceil(seconds)) })}`;
}

function standing(all) {
  const converted = done.value - failed.value.length;
  if (left.value.length) return t("progress.stopped", { done: done.value, all });
  const text = t("progress.done", { count: converted });
  return failed.value.length ? `${text} · ${t("progress.failed", { count: failed.value.length })}` : text;
}

function Ended({ fault }) {
  return html`
    <${Problem} text=${fault.message}>
      ${fault.status === 502 && html`<p><a href=${placeOf("account")}>${t("account.fix")}</a></p>`}
    <//>
  `;
}
