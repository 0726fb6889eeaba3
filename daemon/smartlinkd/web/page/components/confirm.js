// The question before something that cannot be undone.

import { html, signal, useEffect, useRef } from "../lib/ui.js";
import { t } from "../lib/i18n.js";

const asked = signal(null);

// Ask { title, text, yes }. Resolves to true when it is wanted.
export function confirm(question) {
  asked.value?.settle(false);
  return new Promise((settle) => {
    asked.value = { ...question, settle };
  });
}

export function Confirm() {
  const dialog = useRef(null);
  const question = asked.value;
  useEffect(() => {
    if (!question) return;
    dialog.current.showModal();
    dialog.current.querySelector(".quiet").focus(); // who presses Enter at once does no harm
  }, [question]);
  if (!question) return null;
  const closed = () => {
    asked.value = null;
    question.settle(dialog.current?.returnValue === "yes");
  };
  return html`
    <dialog ref=${dialog} aria-labelledby="question" aria-describedby="consequence" onClose=${closed}>
      <form method="dialog">
        <h2 id="question">${question.title}</h2>
        <p id="consequence">${question.text}</p>
        <div class="actions">
          <button value="yes" class="danger">${question.yes}</button>
          <button value="" class="quiet">${t("cancel")}</button>
        </div>
      </form>
    </dialog>
  `;
}
