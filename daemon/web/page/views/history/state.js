// How the history is asked for.

import { ask } from "../../lib/api.js";

export const PAGE = 50;
const MOST_FOR_PLOT = 1000; // entries
const LARGEST_PAGE = 200;

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

// The newest entries, for the plot of days: { entries, isWhole }.
export async function newest(filters, abort) {
  const entries = [];
  let cursor = "";
  do {
    const answer = await ask(pathOf(filters, { limit: LARGEST_PAGE, cursor }), { signal: abort });
    entries.push(...answer.entries);
    cursor = answer.nextCursor;
  } while (cursor && entries.length < MOST_FOR_PLOT);
  return { entries, isWhole: !cursor };
}

// Links and commission a day, oldest first, with the days between that have none.
export function byDay(entries) {
  const days = new Map();
  for (const { at, product } of entries) {
    const moment = new Date(at);
    const day = new Date(moment.getFullYear(), moment.getMonth(), moment.getDate()).getTime();
    const { links, commission } = days.get(day) ?? { links: 0, commission: 0 };
    days.set(day, { links: links + 1, commission: commission + (product?.commission ?? 0) });
  }
  if (!days.size) return [];
  const found = [];
  const last = Math.max(...days.keys());
  for (const date = new Date(Math.min(...days.keys())); date.getTime() <= last; date.setDate(date.getDate() + 1)) {
    found.push({ at: date.getTime(), ...(days.get(date.getTime()) ?? { links: 0, commission: 0 }) });
  }
  return found;
}
