// The form that is there while a crew waits for a human's answer.

import { action, block, busily, element } from "./dom.js";

export class Question {
  // `answer(feedback, approve)` sends it.
  constructor(answer) {
    this.answer = answer;
    this.about = "";
    this.answered = null; // the number of the event whose question was answered last
    this.node = element("section", { class: "question", hidden: true });
  }

  // `asked` is as `EventList` has it, or null while no event of a question has come.
  show({ status, current_task: task, started_at: since }, asked) {
    this.node.hidden = status !== "waiting_for_human_input";
    // A task may be asked about again before that event has come, also when all began again.
    const isNew = asked?.task_id === task && asked.number !== this.answered && asked.began === since;
    const known = isNew ? asked : null;
    const about = this.node.hidden ? "" : JSON.stringify([task, known?.number]);
    if (about === this.about) return; // what is being typed stays
    this.about = about;
    this.node.replaceChildren(...(this.node.hidden ? [] : this.form(task, known)));
  }

  async send(known, feedback, approve) {
    await this.answer(feedback, approve);
    this.answered = known?.number ?? this.answered;
  }

  form(task, known) {
    const feedback = element("textarea", { id: "feedback", rows: "3" });
    const missing = element("p", { class: "problem", role: "alert", hidden: true }, "Say what to change.");
    const back = async () => {
      missing.hidden = feedback.value.trim() !== "";
      if (!missing.hidden) return feedback.focus();
      return this.send(known, feedback.value, false);
    };
    const form = element(
      "form",
      { method: "post" },
      element("label", { for: "feedback" }, "Feedback"),
      feedback,
      missing,
      element(
        "div",
        { class: "actions" },
        element("button", { id: "approve" }, "Approve"),
        action("Send back", back, { class: "quiet" }),
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      busily(form.querySelector("#approve"), () => this.send(known, feedback.value, true));
    });
    return [
      element("h2", {}, "The crew asks you"),
      element("p", { class: "prompt" }, known?.prompt ?? `About the task ${task}`),
      known?.output ? block("To be looked at", known.output) : null,
      form,
    ].filter(Boolean);
  }
}
