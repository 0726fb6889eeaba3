// Waiting, and doing something again and again, until the view is left.

import { Failure } from "./session.js";

const LONGEST = 15000; // milliseconds between two tries while the daemon cannot be reached

// A promise that `begin(settle)` settles, unless `signal` is aborted before that. What `begin`
// returns ends its waiting.
function unlessLeft(signal, begin) {
  signal.throwIfAborted();
  return new Promise((settle, fail) => {
    const leave = () => {
      end();
      fail(signal.reason);
    };
    const end = begin(() => {
      signal.removeEventListener("abort", leave);
      settle();
    });
    signal.addEventListener("abort", leave);
  });
}

export async function pause(milliseconds, signal) {
  await unlessLeft(signal, (settle) => {
    const timer = setTimeout(settle, milliseconds);
    return () => clearTimeout(timer);
  });
}

// Wait until somebody looks.
export async function seen(signal) {
  if (!document.hidden) return;
  await unlessLeft(signal, (settle) => {
    document.addEventListener("visibilitychange", settle, { once: true });
    return () => document.removeEventListener("visibilitychange", settle);
  });
}

// What `work` gives, with a signal that is aborted also when nobody looks any more; nothing then.
// A browser has six connections to the daemon, for all of its tabs.
export async function whileSeen(signal, work) {
  await seen(signal);
  const hidden = new AbortController();
  const leave = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", leave);
  try {
    return await work(AbortSignal.any([signal, hidden.signal]));
  } catch (fault) {
    if (signal.aborted || !hidden.signal.aborted) throw fault;
    return undefined;
  } finally {
    document.removeEventListener("visibilitychange", leave);
  }
}

// Do `work` every so many milliseconds while somebody looks, until it says true or the view is left.
export async function regularly(milliseconds, signal, work) {
  for (;;) {
    if (await untilItWorks(signal, work)) return;
    await pause(milliseconds, signal);
    await seen(signal);
  }
}

// Do `work` until it does not fail. Only a failure that stays one is thrown.
export async function untilItWorks(signal, work) {
  for (let wait = 1000; ; wait = Math.min(LONGEST, wait * 2)) {
    try {
      const result = await work();
      notice("");
      return result;
    } catch (fault) {
      signal.throwIfAborted();
      if (!(fault instanceof Failure && fault.passing)) throw fault;
      notice(`${fault.message} Trying again…`);
    }
    await pause(wait, signal);
  }
}

export function notice(text) {
  const place = document.getElementById("notice");
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
}
