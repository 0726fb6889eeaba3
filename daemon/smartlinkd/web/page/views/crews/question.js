// The form that is there while a crew waits for a human's answer.

import { html, useState } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { Action, Submit, useAction } from "../../components/action.js";
import { Field } from "../../components/field.js";
import { Block, Section } from "../../components/text.js";

// `asked` is as `useEvents` has it, or null while no event of a question has come.
export function Question({ status, asked, onAnswer }) {
  const [answered, setAnswered] = useState(null); // the event's number of the question answered last
  const { current_task: task } = status;
  if (status.status !== "waiting_for_human_input") return null;
  // A task may be asked about again before that event has come, also when all began again.
  const isNew = asked?.task_id === task && asked.number !== answered && asked.began === status.started_at;
  const known = isNew ? asked : null;
  const answer = async (feedback, approve) => {
    await onAnswer(feedback, approve);
    setAnswered(known?.number ?? answered);
  };
  return html`
    <${Section} kind="question" title=${t("question.title")}>
      <p class="prompt">${known?.prompt ?? t("question.about", { task })}</p>
      ${known?.output && html`<${Block} name=${t("question.output")}>${known.output}<//>`}
      <${Form} key=${`${task} ${known?.number}`} onAnswer=${answer} />
    <//>
  `;
}

function Form({ onAnswer }) {
  const [feedback, setFeedback] = useState("");
  const [isMissing, setMissing] = useState(false);
  const approve = useAction(() => onAnswer(feedback, true));
  const sendBack = async () => {
    setMissing(!feedback.trim());
    if (feedback.trim()) await onAnswer(feedback, false);
  };
  return html`
    <form onSubmit=${approve.submit}>
      <${Field} label=${t("question.feedback")} fault=${isMissing && !feedback.trim() ? t("question.missing") : ""}>
        ${(attributes) => html`<textarea ...${attributes} rows="3" value=${feedback} onInput=${(event) => setFeedback(event.target.value)}></textarea>`}
      <//>
      <div class="actions">
        <${Submit} action=${approve}>${t("question.approve")}<//>
        <${Action} kind="quiet" onAct=${sendBack}>${t("question.sendBack")}<//>
      </div>
    </form>
  `;
}
