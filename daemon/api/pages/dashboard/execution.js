// One execution: what went wrong, what came out, its tasks, and what happens in it, live.

import { crewNamed } from "./crews.js";
import { Crew, ENDED } from "./crew.js";
import { action, block, confirmed, element, link, section, titled } from "./dom.js";
import { EventList } from "./events.js";
import { stateBadge } from "./executions.js";
import { shown } from "./json.js";
import { Question } from "./question.js";
import { Result, Tasks } from "./results.js";
import { moment, took } from "./times.js";
import { pause, seen, untilItWorks, whileSeen } from "./waiting.js";

const AT_LEAST = 500; // milliseconds between two looks at the status
const AT_MOST = 5000; // the same, when no event says that something has changed

export async function executionView(arrive, signal, name, id) {
  const crew = new Crew(await crewNamed(name, signal));
  const view = new View(crew, id);
  await view.refresh(signal);
  arrive(`Execution ${id.slice(0, 8)}`, ...view.nodes);
  await Promise.all([view.keepFresh(signal), view.keepListening(signal)]);
}

class View {
  constructor(crew, id) {
    this.crew = crew;
    this.id = id;
    this.state = element("span", { role: "status" });
    this.title = element("h1", {}, `Execution ${id.slice(0, 8)} `, this.state);
    this.actions = element("div", { class: "actions" }, action("Stop…", () => this.stop(), { class: "danger" }));
    this.error = element("section", { class: "failure", hidden: true });
    this.facts = element("dl");
    this.question = new Question((feedback, approve) => this.answer(feedback, approve));
    this.result = new Result();
    this.tasks = new Tasks();
    this.events = new EventList();
    this.changed = () => {};
    this.nodes = [
      element("p", { class: "trail" }, link(crew.name, "crews", crew.name), " / ",
        link("Executions", "crews", crew.name, "executions")),
      this.title,
      this.error,
      this.question.node,
      this.actions,
      this.facts,
      this.result.node,
      this.tasks.node,
      section("Events", this.events.node),
    ];
  }

  show(status) {
    this.status = status;
    const ended = ENDED.includes(status.state);
    if (this.state.textContent !== stateBadge(status).textContent) {
      this.state.replaceChildren(stateBadge(status));
    }
    const held = document.activeElement;
    const mayGo = [this.actions, this.question.node].some((part) => part.contains(held));
    this.actions.hidden = ended;
    this.showError(status);
    this.showFacts(status);
    this.question.show(status, this.events.asked);
    this.result.show(status);
    this.tasks.show(status);
    if (mayGo && !held.checkVisibility()) this.title.focus();
  }

  showError({ state, error }) {
    this.error.hidden = state !== "FAILED";
    const text = error ?? "It failed, and did not say why.";
    if (state !== "FAILED" || this.error.dataset.text === text) return;
    this.error.dataset.text = text;
    this.error.replaceChildren(titled("h2", "Error", async () => text), block("Error", text));
  }

  showFacts(status) {
    const { progress, meta } = status;
    const { completed_tasks: completed, total_tasks: total } = progress;
    const facts = [
      ["Created", moment(status.created_at)],
      ["Started", moment(status.started_at)],
      ["Finished", moment(status.finished_at)],
      ["Took", took(status.started_at, status.finished_at)],
      ["Tasks", total ? `${completed} of ${total} done` : "none"],
      ["kickoff_id", element("code", {}, this.id), "wide"],
      ...(meta === null ? [] : [["meta", element("code", {}, shown(meta)), "wide"]]),
    ];
    const state = JSON.stringify([status.started_at, status.finished_at, progress]);
    if (this.facts.dataset.state === state) return;
    this.facts.dataset.state = state;
    this.facts.replaceChildren(
      ...facts.map(([term, fact, kind = ""]) =>
        element("div", { class: kind }, element("dt", {}, term), element("dd", {}, fact)),
      ),
    );
  }

  async stop() {
    const sure = await confirmed("Stop this execution?", "What it has not finished is lost.", "Stop");
    if (!sure) return;
    await this.crew.stop(this.id);
    this.changed();
  }

  async answer(feedback, approve) {
    await this.crew.resume(this.id, this.status.current_task, feedback, approve);
    this.changed();
  }

  async keepFresh(signal) {
    while (!ENDED.includes(this.status.state)) {
      const change = new Promise((settle) => (this.changed = settle));
      await pause(AT_LEAST, signal);
      await Promise.race([change, pause(AT_MOST, signal)]);
      await seen(signal);
      await this.refresh(signal);
    }
  }

  async refresh(signal) {
    this.show(await untilItWorks(signal, () => this.crew.status(this.id, signal)));
  }

  // The stream closes when the execution has ended, but also when the daemon stops; and it may
  // break, or nobody looks. So it counts as the last one only when the end was known before.
  async keepListening(signal) {
    for (;;) {
      const ended = ENDED.includes(this.status.state);
      const closed = await untilItWorks(signal, () => whileSeen(signal, (here) => this.listen(here)));
      if (ended && closed) return;
      await this.refresh(signal);
      if (closed && !ENDED.includes(this.status.state)) await pause(AT_MOST, signal);
    }
  }

  async listen(signal) {
    for await (const event of this.crew.events(this.id, this.events.last, signal)) {
      this.events.add(event);
      this.changed();
    }
    return true;
  }
}
