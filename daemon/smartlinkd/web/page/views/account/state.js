// How the affiliate account stands, for every view that depends on it.

import { computed, signal } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { pause, untilItWorks } from "../../lib/polling.js";
import { siteSetting } from "../../lib/site.js";

const EVERY = 20; // seconds

// The answer of GET /api/account, or null.
export const answer = signal(null);

// { kind, needsCare }, and the account's own fields; null while it is not known. `kind` is "none"
// without a cookie, "unused" without accounts, else the state that needs the most care.
export const account = computed(() => {
  if (!answer.value) return null;
  const { cookie, accounts } = answer.value;
  if (!cookie.stored && siteSetting("needs-cookie") === "yes") return { kind: "none", needsCare: true };
  const states = ["paused", "session_lost", "active"];
  const worst = states.map((state) => accounts.find((each) => each.state === state)).find(Boolean);
  if (!worst) return { kind: "unused", needsCare: false };
  return { kind: worst.state, ...worst, needsCare: worst.state !== "active" };
});

export async function refreshAccount(abort) {
  answer.value = await ask("api/account", { signal: abort });
}

// Keep it fresh until the returned function is called.
export function watchAccount() {
  const left = new AbortController();
  const loop = async () => {
    for (;;) {
      if (!document.hidden) await untilItWorks(left.signal, refreshAccount);
      await pause(EVERY, left.signal);
    }
  };
  loop().catch(() => {
    // Left, or signed out: the frame shows that. Anything else the view of the account tells.
  });
  return () => left.abort();
}
