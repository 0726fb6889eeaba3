// What came out: of the whole, and of its tasks.

import { block, element, reconcile, titled } from "./dom.js";
import { shown } from "./json.js";
import { duration } from "./times.js";

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
        : [element("details", {}, element("summary", {}, "As JSON"), block("As JSON", shown(parsed)))]),
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
  const took = seconds === null ? "" : duration(seconds);
  const about = element("span", { class: "faint" }, element("bdi", {}, agent ?? ""), agent && took ? ", " : "", took);
  return element(
    "li",
    {},
    element(
      "details",
      {},
      element("summary", {}, element("bdi", {}, name || id), " ", about),
      block(`Output of ${name || id}`, output ?? ""),
    ),
  );
}
