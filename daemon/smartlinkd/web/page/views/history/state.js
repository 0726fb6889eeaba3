// How the history is asked for.

import { ask } from "../../lib/api.js";

export const PAGE = 50;

// The names of the filters, as the address and the API have them.
export const FILTERS = ["q", "subId", "from", "to"];

export function pathOf(filters, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...filters, ...more })) {
    if (value) query.set(name, value);
  }
  return `api/history${query.size ? `?${query}` : ""}`;
}

// What the API takes for a day: its first moment, and for `to` the first of the day after.
export function bounds({ q, subId, from, to }) {
  return { q, subId, from: from && startOf(from, 0), to: to && startOf(to, 1) };
}

function startOf(day, plus) {
  const [year, month, date] = day.split("-").map(Number);
  const start = new Date(year, month - 1, date + plus);
  return Number.isNaN(start.getTime()) ? "" : start.toISOString();
}

// Links and commission by day, oldest first, with the days between that have none.
export async function days(filters, abort) {
  const utcOffset = -new Date().getTimezoneOffset();
  const answer = await ask(pathOf(filters, { utcOffset }).replace("history", "history-days"), { signal: abort });
  return filled(answer.days);
}

function filled(known) {
  if (!known.length) return [];
  const byDay = new Map(known.map((each) => [midnight(each.day).getTime(), each]));
  const found = [];
  const last = midnight(known.at(-1).day);
  // Each day is made anew: where clocks go forward at midnight, that day alone begins at 1 o'clock.
  for (let date = midnight(known[0].day); date <= last; date = new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1)) {
    const { links, commission } = byDay.get(date.getTime()) ?? { links: 0, commission: 0 };
    found.push({ at: date.getTime(), links, commission });
  }
  return found;
}

function midnight(day) {
  const [year, month, date] = day.split("-").map(Number);
  return new Date(year, month - 1, date);
}
