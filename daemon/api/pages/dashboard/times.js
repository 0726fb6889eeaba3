// Moments and durations in words.

import { element } from "./dom.js";

const FORMAT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function moment(text) {
  if (!text) return element("span", { class: "faint" }, "–");
  return element("time", { datetime: text, title: text }, FORMAT.format(new Date(text)));
}

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  if (hours) return unbroken(`${hours} h ${minutes} min`);
  if (minutes) return unbroken(`${minutes} min ${whole % 60} s`);
  return unbroken(whole < 10 && seconds > whole ? `${seconds.toFixed(1)} s` : `${whole} s`);
}

function unbroken(text) {
  return text.replaceAll(" ", "\u00a0");
}

// How long something took, or has taken so far: then it goes on by itself.
export function took(since, until) {
  if (!since) return element("span", { class: "faint" }, "–");
  if (until) return element("span", {}, duration((new Date(until) - new Date(since)) / 1000));
  const made = element("span", { "data-since": since });
  tell(made);
  return made;
}

function tell(node) {
  node.textContent = duration(Math.floor((Date.now() - new Date(node.dataset.since)) / 1000));
}

setInterval(() => document.querySelectorAll("[data-since]").forEach(tell), 1000);
