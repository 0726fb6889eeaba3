// Data of the daemon's that a view shows and keeps fresh while somebody looks.

import { signal, useEffect, useState } from "./ui.js";
import { session } from "./api.js";
import { t } from "./i18n.js";

const LONGEST = 15; // seconds between two tries while the daemon cannot be reached

// The line at the top of the page: why nothing is fresh. "" while all is well.
export const trouble = signal("");

// Wait so many seconds. Rejects as soon as `abort` is aborted.
export function pause(seconds, abort) {
  return new Promise((settle, fail) => {
    abort?.throwIfAborted();
    const timer = setTimeout(done, seconds * 1000);
    function done() {
      abort?.removeEventListener("abort", leave);
      settle();
    }
    function leave() {
      clearTimeout(timer);
      fail(abort.reason);
    }
    abort?.addEventListener("abort", leave, { once: true });
  });
}

// Wait until the tab is looked at.
export async function seen(abort) {
  while (document.hidden) {
    await new Promise((settle) => document.addEventListener("visibilitychange", settle, { once: true }));
    abort.throwIfAborted();
  }
}

// What `work` gives, with a signal that is also aborted when nobody looks any more; undefined then.
// A browser has six connections to the daemon, for all of its tabs.
export async function whileSeen(abort, work) {
  await seen(abort);
  const hidden = new AbortController();
  const leave = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", leave);
  try {
    return await work(AbortSignal.any([abort, hidden.signal]));
  } catch (fault) {
    if (abort.aborted || !hidden.signal.aborted) throw fault;
    return undefined;
  } finally {
    document.removeEventListener("visibilitychange", leave);
  }
}

// Run `work` until it does not fail, and show in `shownIn` why it is tried again. Rejects with a
// failure that will not pass, and once `abort` is aborted.
export async function untilItWorks(abort, work, shownIn = trouble) {
  for (let wait = 1; ; wait = Math.min(LONGEST, wait * 2)) {
    try {
      const result = await work(abort);
      abort.throwIfAborted();
      shownIn.value = "";
      return result;
    } catch (fault) {
      abort.throwIfAborted();
      if (!fault.isPassing) throw fault;
      shownIn.value = t("error.tryingAgain", { why: fault.message });
      await pause(fault.retryAfter ?? wait, abort);
    }
  }
}

// Ask again every `seconds` (0: once), and from the start when one of `inputs` changes.
// Returns { data, fault, reload }; `data` stays while it is asked for again.
export function usePolled(work, seconds, inputs = []) {
  const [shown, show] = useState({ data: null, fault: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (session.value !== "in") return undefined;
    const left = new AbortController();
    const loop = async () => {
      for (;;) {
        const data = await untilItWorks(left.signal, work);
        show({ data, fault: null });
        if (!seconds) return;
        await pause(seconds, left.signal);
        await seen(left.signal);
      }
    };
    loop().catch((fault) => {
      if (!left.signal.aborted) show((before) => ({ ...before, fault }));
    });
    return () => left.abort();
  }, [...inputs, round, session.value]);
  return { ...shown, reload: () => setRound((before) => before + 1) };
}
