// The inputs of a run as fields of a form: { name, required, description, value, kind, begins }.

import { t } from "../../lib/i18n.js";
import { parse, shown } from "../../lib/json.js";

let forNext = null;

// Have the next form begin with these inputs, as "run again" does.
export function runAgainWith(inputs) {
  forNext = inputs;
}

export function taken() {
  const inputs = forNext;
  forNext = null;
  return inputs;
}

export function begin(inputs, given) {
  return inputs.map(({ name, required, description, default: standing }) => {
    const isGiven = given !== null && name in given;
    const value = isGiven ? given[name] : required ? "" : standing;
    const kind = typeof value === "string" ? "text" : "json";
    const text = kind === "text" ? value : shown(value);
    // A default that nobody touched is left to the crew.
    const begins = required || isGiven ? null : { value: text, kind };
    return { name, required, description, kind, value: text, begins };
  });
}

// Of a run's inputs those that have no field, as JSON.
export function others(inputs, given) {
  const known = new Set(inputs.map(({ name }) => name));
  const rest = Object.entries(given ?? {}).filter(([name]) => !known.has(name));
  return rest.length ? shown(Object.fromEntries(rest)) : "";
}

// What is wrong, by field.
export function check(fields, rest, nameOfRest) {
  const found = Object.fromEntries(fields.map((field) => [field.name, faultOf(field)]));
  if (rest.trim()) found[nameOfRest] = objectFault(rest);
  return Object.fromEntries(Object.entries(found).filter(([, fault]) => fault));
}

export function faultOf(field) {
  if (isUntouched(field)) return "";
  if (field.kind === "json") return jsonFault(field.value);
  return field.required && field.value === "" ? t("inputs.missing") : "";
}

export function valueOf(field) {
  if (isUntouched(field)) return [];
  return [[field.name, field.kind === "json" ? parse(field.value) : field.value]];
}

function isUntouched({ begins, value, kind }) {
  return begins !== null && begins.value === value && begins.kind === kind;
}

function jsonFault(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return t("inputs.noJson", { why: error.message });
  }
}

function objectFault(text) {
  return jsonFault(text) || (/^\s*\{/.test(text) ? "" : t("inputs.noObject"));
}
