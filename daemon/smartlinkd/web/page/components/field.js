// A form's field with its label, its hint, and what is wrong with its value.

import { html, useId } from "../lib/ui.js";

// `children` is a function of the attributes that tie the control to its label and its fault.
export function Field({ label, hint, fault, beside, children }) {
  const id = useId();
  const described = [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(" ");
  const attributes = {
    id,
    "aria-describedby": described || undefined,
    "aria-invalid": fault ? "true" : undefined,
  };
  return html`
    <div class="field">
      <div class="label"><label for=${id}>${label}</label>${beside}</div>
      ${hint && html`<p id="${id}-hint" class="faint">${hint}</p>`}
      ${children(attributes)}
      ${fault && html`<p id="${id}-fault" class="problem">${fault}</p>`}
    </div>
  `;
}

export function TextField({ label, hint, fault, value, onValue, ...others }) {
  return html`
    <${Field} label=${label} hint=${hint} fault=${fault}>
      ${(attributes) => html`<input ...${attributes} ...${others} value=${value} onInput=${(event) => onValue(event.target.value)} />`}
    <//>
  `;
}

export function Select({ label, value, options, onValue }) {
  return html`
    <label class="select">
      <span>${label}</span>
      <select value=${value} onChange=${(event) => onValue(event.target.value)}>
        ${options.map(([code, text]) => html`<option key=${code} value=${code} selected=${code === value}>${text}</option>`)}
      </select>
    </label>
  `;
}
