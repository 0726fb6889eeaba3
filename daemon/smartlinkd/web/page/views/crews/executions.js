// The runs of a crew: newest first, by state, and more on demand.

import { html, useState } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { placeOf, replace, route } from "../../lib/router.js";
import { Action } from "../../components/action.js";
import { Select, TextField } from "../../components/field.js";
import { Badge, Faint, Moment, Took, Waiting } from "../../components/text.js";

const EVERY = 2; // seconds
const PAGE = 20;
const LONGEST = 120; // characters
const STATES = ["PENDING", "RUNNING", "SUCCESS", "FAILED"];

export function Executions({ crew }) {
  const state = route.value.query.get("state") ?? "";
  const [words, setWords] = useState("");
  const setState = (value) => replace("crews", crew.name, "executions", { state: value });
  const states = [["", t("executions.all")], ...STATES.map((each) => [each, t(`executions.state.${each}`)])];
  return html`
    <div class="row filters">
      <${Select} label=${t("executions.state")} value=${state} options=${states} onValue=${setState} />
      <${TextField} label=${t("executions.search")} type="search" value=${words} onValue=${setWords} />
    </div>
    <${Table} key=${state} crew=${crew} state=${state} words=${words.trim().toLowerCase()} />
  `;
}

function Table({ crew, state, words }) {
  const [older, setOlder] = useState({ runs: [], cursor: undefined });
  const ask = (abort) => crew.executions({ state, limit: PAGE, signal: abort });
  const { data, fault, reload } = usePolled(ask, EVERY, [crew.name, state]);
  if (!data) return html`<${Waiting} fault=${fault} reload=${reload} />`;
  const newest = data.executions;
  const known = new Set(newest.map((run) => run.kickoff_id));
  const all = [...newest, ...older.runs.filter((run) => !known.has(run.kickoff_id))];
  const runs = all.filter((run) => matches(run, words));
  const cursor = older.cursor === undefined ? data.next_cursor : older.cursor;
  const more = async () => {
    const answer = await crew.executions({ state, cursor, limit: PAGE });
    // All that is shown now: a new run pushes the last one off the newest page.
    setOlder({ runs: [...all, ...answer.executions], cursor: answer.next_cursor });
  };
  return html`
    ${!runs.length && html`<${Faint}>${t("executions.none")}<//>`}
    ${runs.length > 0 && html`
      <table class="executions">
        <thead>
          <tr>${["stateOf", "run", "created", "took", "standing"].map((name) => html`<th scope="col" key=${name}>${t(`executions.${name}`)}</th>`)}</tr>
        </thead>
        <tbody>${runs.map((run) => html`<${Row} key=${run.kickoff_id} crew=${crew} run=${run} />`)}</tbody>
      </table>
    `}
    ${cursor && html`<div class="actions"><${Action} kind="quiet" onAct=${more}>${t("executions.older")}<//></div>`}
  `;
}

function matches(run, words) {
  return !words || [run.kickoff_id, run.error, run.current_task, run.status].some((text) => text?.toLowerCase().includes(words));
}

function Row({ crew, run }) {
  return html`
    <tr>
      <td><${StateBadge} run=${run} /></td>
      <td><a href=${placeOf("crews", crew.name, "executions", run.kickoff_id)}><code>${run.kickoff_id.slice(0, 8)}</code></a></td>
      <td><${Moment} at=${run.created_at} /></td>
      <td><${Took} since=${run.started_at} until=${run.finished_at} /></td>
      <td class="faint">${standing(run)}</td>
    </tr>
  `;
}

// In a line: why it failed, or how far it has come.
function standing({ state, error, current_task: current, progress }) {
  if (state === "FAILED") return cut(error ?? "");
  const done = progress.completed_tasks ? t("executions.tasksDone", { done: progress.completed_tasks, all: progress.total_tasks ?? "?" }) : "";
  return [done, state === "RUNNING" ? cut(current ?? "") : ""].filter(Boolean).join(" · ");
}

function cut(text) {
  const line = text.split("\n", 1)[0];
  return line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line;
}

export function StateBadge({ run }) {
  return html`<${Badge} kind=${run.state.toLowerCase()}>${t(`executions.status.${run.status}`)}<//>`;
}
