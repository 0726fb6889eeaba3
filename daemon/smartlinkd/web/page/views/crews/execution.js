// One run: what went wrong, what came out, its tasks, its inputs, and what happens in it, live.

import { html, useEffect, useRef, useState } from "../../lib/ui.js";
import { session } from "../../lib/api.js";
import { t } from "../../lib/i18n.js";
import { shown } from "../../lib/json.js";
import { pause, seen, untilItWorks } from "../../lib/polling.js";
import { go, placeOf } from "../../lib/router.js";
import { Action, Copy } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { Block, Facts, Moment, Section, Title, Took, Waiting } from "../../components/text.js";
import { ENDED } from "./crew.js";
import { Events, useEvents } from "./events.js";
import { StateBadge } from "./executions.js";
import { runAgainWith } from "./inputs.js";
import { Question } from "./question.js";
import { Result, Tasks } from "./results.js";

const AT_LEAST = 0.5; // seconds between two looks at the status
const AT_MOST = 5; // the same, when no event says that something has changed

export function Execution({ crew, id }) {
  const { status, fault, changed } = useStatus(crew, id);
  const events = useEvents(crew, id, status, changed);
  const trail = html`
    <p class="trail">
      <a href=${placeOf("crews", crew.name)}>${crew.name}</a> / <a href=${placeOf("crews", crew.name, "executions")}>${t("crews.executions")}</a> /
    </p>
  `;
  const title = t("execution.title", { id: id.slice(0, 8) });
  if (!status) return html`${trail}<${Title} text=${title} /><${Waiting} fault=${fault} reload=${() => location.reload()} />`;
  return html`
    ${trail}
    <${Title} text=${title}><span role="status"><${StateBadge} run=${status} /></span><//>
    ${status.state === "FAILED" && html`<${Failed} error=${status.error ?? t("execution.noError")} />`}
    <${Question} status=${status} asked=${events.asked} onAnswer=${(feedback, approve) => answer(crew, id, status, feedback, approve, changed)} />
    <div class="actions">
      ${!ENDED.includes(status.state) && html`<${Action} kind="danger" onAct=${() => stop(crew, id, changed)}>${t("execution.stop")}<//>`}
      <${Action} kind="quiet" onAct=${() => again(crew, status)}>${t("execution.again")}<//>
    </div>
    <${About} id=${id} status=${status} tokens=${events.tokens} />
    <${Result} status=${status} />
    <${Tasks} status=${status} />
    ${status.inputs && html`<${Inputs} inputs=${status.inputs} />`}
    <${Events} events=${events} />
  `;
}

function About({ id, status, tokens }) {
  const { progress, meta } = status;
  return html`
    <${Facts} rows=${[
      [t("execution.created"), html`<${Moment} at=${status.created_at} />`],
      [t("execution.started"), html`<${Moment} at=${status.started_at} />`],
      [t("execution.finished"), html`<${Moment} at=${status.finished_at} />`],
      [t("execution.took"), html`<${Took} since=${status.started_at} until=${status.finished_at} />`],
      [t("execution.tasks"), t("executions.tasksDone", { done: progress.completed_tasks, all: progress.total_tasks ?? "?" })],
      [t("execution.tokens"), tokens],
      ["kickoff_id", html`<code>${id}</code>`, "wide"],
      ["meta", meta === null ? null : html`<code>${shown(meta)}</code>`, "wide"],
    ]} />
  `;
}

function Failed({ error }) {
  return html`
    <${Section} kind="failure" title=${t("execution.error")} beside=${html`<${Copy} text=${error} label=${t("execution.copyError")} />`}>
      <${Block} name=${t("execution.error")}>${error}<//>
    <//>
  `;
}

function Inputs({ inputs }) {
  return html`
    <${Section} title=${t("execution.inputs")}>
      <${Block} name=${t("execution.inputs")}>${shown(inputs)}<//>
    <//>
  `;
}

// The status, asked for again when an event says that something has changed, until the end.
function useStatus(crew, id) {
  const [state, setState] = useState({ status: null, fault: null });
  const wake = useRef(() => {});
  useEffect(() => {
    if (session.value !== "in") return undefined;
    const left = new AbortController();
    const loop = async () => {
      for (;;) {
        const status = await untilItWorks(left.signal, () => crew.status(id, left.signal));
        setState({ status, fault: null });
        if (ENDED.includes(status.state)) return;
        const woken = new Promise((settle) => (wake.current = settle));
        await pause(AT_LEAST, left.signal);
        await Promise.race([woken, pause(AT_MOST, left.signal)]);
        await seen(left.signal);
      }
    };
    loop().catch((fault) => left.signal.aborted || setState((before) => ({ ...before, fault })));
    return () => left.abort();
  }, [crew.name, id, session.value]);
  return { ...state, changed: () => wake.current() };
}

async function stop(crew, id, changed) {
  const question = { title: t("execution.stop.title"), text: t("execution.stop.text"), yes: t("execution.stop") };
  if (!(await confirm(question))) return;
  await crew.stop(id);
  changed();
}

async function answer(crew, id, status, feedback, approve, changed) {
  await crew.resume(id, status.current_task, feedback, approve);
  changed();
}

async function again(crew, status) {
  runAgainWith(status.inputs ?? {});
  go("crews", crew.name, "run");
}
