// One conversion of a text: its links in pieces, what came of each, and how it goes on.
//
// What is done is kept for the tab, piece by piece, so that a reload loses nothing.

import { batch, computed, effect, signal } from "../../lib/ui.js";
import { ask, session } from "../../lib/api.js";
import { untilItWorks } from "../../lib/polling.js";
import { read, remove, write } from "../../lib/storage.js";

const PIECE = 15; // links in a request
const UNKNOWN = { error: true, failCode: -1 };

// What stands in the box.
export const draft = signal(read(sessionStorage, "draft", ""));
effect(() => void write(sessionStorage, "draft", draft.value));

// { text, places: [{ link, start, end }], links, subIds }, or null. Places count code points.
export const job = signal(null);
export const entries = signal({}); // by link
export const isRunning = signal(false);
export const problem = signal(null); // the failure that ended it
export const waiting = signal(""); // why it waits before it goes on
export const isKept = signal(true); // false: a reload would lose something
const began = signal({ at: 0, done: 0 });
let pieces = 0; // that are kept
let due = []; // the links that the run has still to convert
let stopping = new AbortController();

export const done = computed(() => Object.keys(entries.value).length);
export const failed = computed(() => (job.value?.links ?? []).filter((link) => entries.value[link]?.error));
export const left = computed(() => (job.value?.links ?? []).filter((link) => !entries.value[link]));

// Seconds, or null while it cannot be told.
export function timeLeft() {
  const made = done.value - began.value.done;
  if (!isRunning.value || made < 1) return null;
  return (((Date.now() - began.value.at) / 1000) * due.length) / made;
}

restore();

function restore() {
  job.value = read(sessionStorage, "job");
  if (!job.value) return;
  const found = {};
  for (let piece; (piece = read(sessionStorage, `job.${pieces}`)); pieces += 1) Object.assign(found, piece);
  entries.value = found;
}

export function clear() {
  stop();
  for (; pieces > 0; pieces -= 1) remove(sessionStorage, `job.${pieces - 1}`);
  remove(sessionStorage, "job");
  batch(() => {
    job.value = null;
    entries.value = {};
    problem.value = null;
    isKept.value = true;
    isRunning.value = false; // the aborted run ends later
    waiting.value = "";
  });
}

// Find the links of a text and convert them. Returns how many there are.
export async function begin(text, subIds) {
  const { links: places } = await ask("api/extract", { body: { text } });
  if (!places.length) return 0;
  clear();
  job.value = { text, places, links: [...new Set(places.map(({ link }) => link))], subIds };
  isKept.value = write(sessionStorage, "job", job.value);
  run(left.value);
  return places.length;
}

export function stop() {
  stopping.abort();
}

// Convert these links; while others are being converted, after them.
export async function run(links) {
  if (isRunning.value) {
    due.push(...links);
    return;
  }
  due = [...links];
  stopping = new AbortController();
  const { signal: abort } = stopping;
  batch(() => {
    isRunning.value = true;
    problem.value = null;
    began.value = { at: Date.now(), done: done.value };
  });
  try {
    while (due.length) {
      const piece = due.slice(0, PIECE);
      const body = { links: piece, subIds: job.value.subIds };
      // Converting the same links twice does no harm.
      const { mapping } = await untilItWorks(abort, () => ask("api/convert", { body, signal: abort }), waiting);
      due.splice(0, piece.length);
      keep(Object.fromEntries(piece.map((link) => [link, mapping[link] ?? UNKNOWN])));
    }
  } catch (fault) {
    if (!abort.aborted) problem.value = fault;
  } finally {
    if (stopping.signal === abort) {
      batch(() => {
        isRunning.value = false;
        waiting.value = "";
      });
    }
  }
}

function keep(found) {
  entries.value = { ...entries.value, ...found };
  if (write(sessionStorage, `job.${pieces}`, found)) pieces += 1;
  else isKept.value = false;
}

// Convert some links again.
export function retry(links) {
  entries.value = Object.fromEntries(Object.entries(entries.value).filter(([link]) => !links.includes(link)));
  run(links);
}

// The text with each link that was converted replaced.
export function replacedText({ text, places }, found) {
  const points = [...text];
  const parts = [];
  let end = 0;
  for (const place of places) {
    parts.push(points.slice(end, place.start).join(""), found[place.link]?.shortLink ?? place.link);
    end = place.end;
  }
  return [...parts, points.slice(end).join("")].join("");
}

// Who has logged in again is offered to go on, and not told of the session that ended.
effect(() => {
  if (session.value === "in" && problem.peek()?.status === 403) problem.value = null;
});
