// The page's language, and texts, numbers and times in it.

import { signal } from "./ui.js";
import { siteSetting } from "./site.js";
import { read, write } from "./storage.js";
import en from "../i18n/en.js";
import vi from "../i18n/vi.js";

const CATALOGUES = { en, vi };
const KEY = "language";
const NOW = 45; // seconds below which a moment is "now"
const UNITS = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];

export const LANGUAGES = { en: "English", vi: "Tiếng Việt" };
export const language = signal(preferred());

function preferred() {
  const wanted = [read(localStorage, KEY), ...navigator.languages].filter(Boolean);
  return wanted.map((tag) => tag.split("-")[0]).find((code) => code in CATALOGUES) ?? "en";
}

export function setLanguage(code) {
  write(localStorage, KEY, code);
  language.value = code;
  document.documentElement.lang = code;
}

// The text of a key, with `{name}` replaced by values. With `count` the key has the plural form's
// name behind it.
export function t(key, values = {}) {
  const catalogue = CATALOGUES[language.value];
  const form = "count" in values ? `${key}.${plural(values.count)}` : key;
  const text = catalogue[form] ?? catalogue[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) =>
    name in values ? String(typeof values[name] === "number" ? number(values[name]) : values[name]) : whole,
  );
}

export function has(key) {
  return key in CATALOGUES[language.value];
}

function plural(count) {
  return new Intl.PluralRules(language.value).select(count) === "one" ? "one" : "other";
}

export function number(value, options) {
  return new Intl.NumberFormat(language.value, options).format(value);
}

// Whole units of the market's currency.
export function money(value) {
  return number(value, { style: "currency", currency: siteSetting("currency"), maximumFractionDigits: 0 });
}

export function bytes(value) {
  const megabytes = value / 2 ** 20;
  return `${number(megabytes, { maximumFractionDigits: megabytes < 10 ? 1 : 0 })} MiB`;
}

export function moment(text) {
  const format = { dateStyle: "medium", timeStyle: "short" };
  return new Intl.DateTimeFormat(language.value, format).format(new Date(text));
}

export function clock(text) {
  return new Intl.DateTimeFormat(language.value, { timeStyle: "medium" }).format(new Date(text));
}

// "5 minutes ago", in the page's language.
export function ago(text) {
  const seconds = (new Date(text) - Date.now()) / 1000;
  const format = new Intl.RelativeTimeFormat(language.value, { numeric: "auto" });
  if (Math.abs(seconds) < NOW) return format.format(0, "second");
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? UNITS.at(-1);
  return format.format(Math.round(seconds / size), unit);
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  if (hours) return t("time.hours", { hours, minutes });
  if (minutes) return t("time.minutes", { minutes, seconds: whole % 60 });
  return t("time.seconds", { seconds: seconds < 10 ? Math.max(0, Math.round(seconds * 10) / 10) : whole });
}
