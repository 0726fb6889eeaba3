// The Run tab: a form made from the inputs.

import { crewNamed, heading } from "./crews.js";
import { Crew } from "./crew.js";
import { busily, element, placeOf } from "./dom.js";
import { parse, shown } from "./json.js";

export async function runView(arrive, signal, name) {
  const entry = await crewNamed(name, signal);
  arrive(`Run ${name}`, ...heading(entry, "run"), ...(entry.problems.length ? [] : [form(entry)]));
}

function form(entry) {
  const fields = entry.inputs.map(inputField);
  const others = otherInputs(fields.length === 0);
  const button = element("button", {}, "Run");
  let wish = { key: "", of: "" };
  const made = element(
    "form",
    { method: "post", novalidate: true },
    ...fields.map((field) => field.node),
    others.node,
    element("div", { class: "actions" }, button),
  );
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    const all = [others, ...fields];
    const good = all.map((field) => field.check()); // each of them, so that all faults show
    if (!good.every(Boolean)) {
      made.querySelector("[aria-invalid=true]").focus();
      return;
    }
    busily(button, async () => {
      const inputs = Object.fromEntries(all.flatMap((field) => Object.entries(field.value())));
      // Who presses again after a failure means the same, which may have begun for all that.
      const of = JSON.stringify(inputs);
      if (of !== wish.of) wish = { key: newKey(), of };
      const id = await new Crew(entry).kickoff(inputs, wish.key);
      location.hash = placeOf("crews", entry.name, "executions", id);
    });
  });
  return made;
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID() is not there over plain HTTP
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A field gives `check()`, which shows its fault, and then `value()`: a part of the inputs.

function inputField(input, number) {
  const id = `input-${number}`;
  const asText = input.required || typeof input.default === "string";
  const kind = element(
    "select",
    { "aria-label": `${input.name}: how the value is written` },
    element("option", { value: "text", selected: asText }, "Text"),
    element("option", { value: "json", selected: !asText }, "JSON"),
  );
  const box = textBox(id, input.required);
  const given = input.required ? "" : asText ? input.default : shown(input.default);
  box.value = given;
  const fault = faultOf(id);
  const mark = input.required ? "required" : "optional";
  const node = element(
    "div",
    { class: "field" },
    element(
      "div",
      { class: "label" },
      element("label", { for: id }, input.name, " ", element("span", { class: mark }, mark)),
      kind,
    ),
    input.description ? element("p", { id: `${id}-about`, class: "faint" }, input.description) : null,
    box,
    fault,
  );
  if (input.description) box.setAttribute("aria-describedby", `${id}-about ${id}-fault`);
  // What the form came with is the default: the crew has it.
  const untouched = () => !input.required && box.value === given && (kind.value === "text") === asText;
  return {
    node,
    check() {
      if (untouched()) return say(box, fault, "");
      if (kind.value === "json") return say(box, fault, jsonFault(box.value));
      const empty = input.required && box.value === "";
      return say(box, fault, empty ? 'Give a value. (For an empty text choose JSON and write "".)' : "");
    },
    value() {
      if (untouched()) return {};
      return { [input.name]: kind.value === "json" ? parse(box.value) : box.value };
    },
  };
}

function otherInputs(open) {
  const box = textBox("others", false);
  const fault = faultOf("others");
  const node = element(
    "details",
    { open, class: "field" },
    element("summary", {}, "Other inputs"),
    element("label", { for: "others", class: "faint" }, "A JSON object with any values besides"),
    box,
    fault,
  );
  const empty = () => box.value.trim() === "";
  return {
    node,
    check() {
      const text = empty() ? "" : objectFault(box.value);
      if (text) node.open = true;
      return say(box, fault, text);
    },
    value: () => (empty() ? {} : parse(box.value)),
  };
}

function textBox(id, required) {
  return element("textarea", {
    id,
    rows: "2",
    spellcheck: "false",
    "aria-required": required ? "true" : null,
    "aria-describedby": `${id}-fault`,
  });
}

function faultOf(id) {
  return element("p", { id: `${id}-fault`, class: "problem", hidden: true });
}

function say(box, place, text) {
  place.textContent = text;
  place.hidden = !text;
  box.ariaInvalid = text ? "true" : null;
  return !text;
}

function jsonFault(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

function objectFault(text) {
  const fault = jsonFault(text);
  if (fault) return fault;
  return /^\s*\{/.test(text) ? "" : 'This is not an object: write {"name": value, …}';
}
