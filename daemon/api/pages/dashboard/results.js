// What came out: of the whole, and of its tasks.

import { block, element, reconcile, titled } from "./dom.js";
import { duration } from "./times.js";

export function json(value) {
  return JSON.stringify(value, null, 2);
}

export class Result {
  constructor() {
    this.node = element("section", { hidden: true });
  }

  show({ state, result, result_json: parsed }) {
    // Of a failed one it is the error again.
    if (state !== "SUCCESS" || !this.node.hidden) return;
    this.node.hidden = false;
    this.node.append(
      titled("h2", "Output", async () => result),
      block("Output", result),
      ...(parsed === null
        ? []
        : [element("details", {}, element("summary", {}, "As JSON"), block("As JSON", json(parsed)))]),
    );
  }
}

export class Tasks {
  constructor() {
    this.list = element("ol", { class: "tasks" });
    this.now = element("p", { class: "faint", hidden: true });
    this.node = element("section", { hidden: true }, element("h2", {}, "Tasks"), this.list, this.now);
  }

  show({ state, tasks, current_task: current }) {
    const running = state === "RUNNING" && current !== null;
    this.node.hidden = tasks.length === 0 && !running;
    reconcile(this.list, tasks.map((task, number) => ({ ...task, number })), (task) => task.number, line);
    this.now.hidden = !running;
    this.now.textContent = running ? `Now: ${current}` : "";
  }
}

function line({ task_id: id, name, agent, output, execution_time: seconds }) {
  const about = [agent, seconds === null ? null : duration(seconds)].filter(Boolean).join(", ");
  return element(
    "li",
    {},
    element(
      "details",
      {},
      element("summary", {}, name || id, " ", element("span", { class: "faint" }, about)),
      block(`Output of ${name || id}`, output ?? ""),
    ),
  );
}
