// What came out: of the whole, and of its tasks.

import { html } from "../../lib/ui.js";
import { duration, t } from "../../lib/i18n.js";
import { shown } from "../../lib/json.js";
import { Copy } from "../../components/action.js";
import { Block, Section } from "../../components/text.js";

const LINK = /(https?:\/\/[^\s<>"'`)\]}]+)/;
const TAIL = /[.,;:!?…]+$/;

export function Result({ status }) {
  const { state, result, result_json: parsed } = status;
  if (state !== "SUCCESS") return null; // of a failed one it is the error again
  return html`
    <${Section} title=${t("result.title")} beside=${html`<${Copy} text=${result} label=${t("result.copy")} />`}>
      <${Block} name=${t("result.title")}><${Linked} text=${result} /><//>
      ${parsed !== null && html`<details><summary>${t("result.json")}</summary><${Block} name=${t("result.json")}>${shown(parsed)}<//></details>`}
    <//>
  `;
}

// Text with its links as links. Everything else stays text.
export function Linked({ text }) {
  return text.split(LINK).map((part, place) => {
    if (place % 2 === 0) return part;
    const tail = TAIL.exec(part)?.[0] ?? "";
    const address = part.slice(0, part.length - tail.length);
    return html`<a key=${place} href=${address} target="_blank" rel="noreferrer">${address}</a>${tail}`;
  });
}

export function Tasks({ status }) {
  const { state, tasks, current_task: current } = status;
  const isRunning = state === "RUNNING" && current !== null;
  if (!tasks.length && !isRunning) return null;
  return html`
    <${Section} title=${t("tasks.title")}>
      <ol class="plain tasks">${tasks.map((task, place) => html`<${Task} key=${place} task=${task} />`)}</ol>
      ${isRunning && html`<p class="faint" role="status">${t("tasks.now", { task: current })}</p>`}
    <//>
  `;
}

function Task({ task }) {
  const name = task.name || task.task_id;
  const about = [task.agent, task.execution_time !== null && duration(task.execution_time)].filter(Boolean).join(", ");
  return html`
    <li>
      <details>
        <summary><bdi>${name}</bdi> <span class="faint"><bdi>${about}</bdi></span></summary>
        <${Block} name=${name}><${Linked} text=${task.output ?? ""} /><//>
      </details>
    </li>
  `;
}
