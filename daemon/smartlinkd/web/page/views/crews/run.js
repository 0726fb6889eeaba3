// The form that starts a run, made from the crew's inputs.

import { html, useMemo, useRef, useState } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { parse } from "../../lib/json.js";
import { go } from "../../lib/router.js";
import { Submit, useAction } from "../../components/action.js";
import { Field, Select } from "../../components/field.js";
import { begin, check, faultOf, others, taken, valueOf } from "./inputs.js";

const OTHERS = "\0others";

export function Run({ crew }) {
  const given = useMemo(taken, []);
  const [fields, setFields] = useState(() => begin(crew.entry.inputs, given));
  const [rest, setRest] = useState(() => others(crew.entry.inputs, given));
  const [faults, setFaults] = useState({});
  const wish = useRef({ key: "", of: "" });
  const form = useRef(null);
  const action = useAction(async () => {
    const found = check(fields, rest, OTHERS);
    setFaults(found);
    if (Object.keys(found).length) {
      setTimeout(() => form.current.querySelector("[aria-invalid]")?.focus());
      return;
    }
    const inputs = { ...(rest.trim() ? parse(rest) : {}), ...Object.fromEntries(fields.flatMap(valueOf)) };
    // Who presses again after a failure means the same run, which may have begun for all that.
    const of = JSON.stringify(inputs);
    if (of !== wish.current.of) wish.current = { key: newKey(), of };
    go("crews", crew.name, "executions", await crew.kickoff(inputs, wish.current.key));
  });
  const change = (place, changed) => {
    const field = { ...fields[place], ...changed };
    setFields(fields.map((each, at) => (at === place ? field : each)));
    // What was missing is there now: its fault goes while it is typed.
    if (faults[field.name]) setFaults({ ...faults, [field.name]: faultOf(field) });
  };
  if (crew.entry.problems.length) return null;
  return html`
    <form ref=${form} onSubmit=${action.submit} novalidate>
      ${fields.map((field, place) => html`<${Input} key=${field.name} field=${field} fault=${faults[field.name]} onChange=${(changed) => change(place, changed)} />`)}
      <details class="field" open=${!fields.length || Boolean(rest) || Boolean(faults[OTHERS])}>
        <summary>${t("inputs.others")}</summary>
        <${Field} label=${t("inputs.othersLabel")} fault=${faults[OTHERS]}>
          ${(attributes) => html`<textarea ...${attributes} rows="2" spellcheck="false" value=${rest} onInput=${(event) => setRest(event.target.value)}></textarea>`}
        <//>
      </details>
      <div class="actions"><${Submit} action=${action}>${t("crews.run")}<//></div>
    </form>
  `;
}

function Input({ field, fault, onChange }) {
  const kinds = [["text", t("inputs.text")], ["json", t("inputs.json")]];
  const beside = html`<${Select} label=${t("inputs.kind", { name: field.name })} value=${field.kind} options=${kinds} onValue=${(kind) => onChange({ kind })} />`;
  const label = html`${field.name} <span class=${field.required ? "required" : "optional"}>${t(field.required ? "inputs.required" : "inputs.optional")}</span>`;
  return html`
    <${Field} label=${label} hint=${field.description} fault=${fault} beside=${beside}>
      ${(attributes) => html`
        <textarea ...${attributes} rows="2" spellcheck="false" aria-required=${field.required || undefined}
          value=${field.value} onInput=${(event) => onChange({ value: event.target.value })}></textarea>
      `}
    <//>
  `;
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID() is missing on plain HTTP
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
