// Buttons that do something, and say beside them why they could not.

import { html, useRef, useState } from "../lib/ui.js";
import { t } from "../lib/i18n.js";
import { copy } from "../lib/clipboard.js";
import { Problem } from "./text.js";

const SHOWN = 1500; // milliseconds for which "copied" is said

// State of one action at a time: { busy, fault, run, submit }. `submit` is a form's `onSubmit`.
export function useAction(work) {
  const [state, set] = useState({ busy: false, fault: null });
  const isBusy = useRef(false);
  const run = async (...given) => {
    if (isBusy.current) return;
    isBusy.current = true;
    set({ busy: true, fault: null });
    let fault = null;
    try {
      await work(...given);
    } catch (caught) {
      fault = caught;
    }
    isBusy.current = false;
    set({ busy: false, fault });
  };
  const submit = (event) => {
    event.preventDefault();
    run();
  };
  return { ...state, run, submit };
}

// `aria-disabled` in place of `disabled`, which would take the focus away.
export function Action({ onAct, kind = "", label, children }) {
  const { busy, fault, run } = useAction(onAct);
  return html`
    <span class="action">
      <button type="button" class=${kind} aria-label=${label} aria-disabled=${busy || undefined} onClick=${run}>
        ${children}
      </button>
      ${fault && html`<${Problem} text=${fault.message} />`}
    </span>
  `;
}

// A form's own button, with the failure of the form's action.
export function Submit({ action, kind = "", children }) {
  return html`
    <button type="submit" class=${kind} aria-disabled=${action.busy || undefined}>${children}</button>
    ${action.fault && html`<${Problem} text=${action.fault.message} />`}
  `;
}

// `text` is a text, or a function that returns one, also later.
export function Copy({ text, label, children, kind = "quiet" }) {
  const [isDone, setDone] = useState(false);
  const act = async () => {
    await copy(typeof text === "function" ? await text() : text);
    setDone(true);
    setTimeout(() => setDone(false), SHOWN);
  };
  return html`
    <${Action} onAct=${act} kind=${kind} label=${isDone ? undefined : label}>
      ${isDone ? t("copied") : (children ?? t("copy"))}
    <//>
  `;
}
