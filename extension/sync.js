// When the account's cookie is sent to the daemon, and when it is not.

import { call, DaemonError } from "./daemon.js";

const SESSION_COOKIES = ["SPC_EC", "SPC_ST", "SPC_U"];
const AT_MOST_EVERY_MS = 30 * 60_000;

/** True for a cookie whose change may mean a new session. */
export function isSessionCookie({ name }) {
  return SESSION_COOKIES.includes(name);
}

/** Return the portal's cookies as the value of a Cookie header; "" without a session. */
export async function readCookie({ portal }) {
  const cookies = await chrome.cookies.getAll({ url: `${portal}/` });
  const has = (name) => cookies.some((each) => each.name === name && !["", "-"].includes(each.value));
  if (!has("SPC_EC") && !has("SPC_ST")) return "";
  return cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
}

/**
 * Return what identifies the session in a cookie: {digest, user}. The cookie itself is not kept.
 * `user` is the account's number, which is no secret.
 */
export async function identify(cookie) {
  const user = cookie.split("; ").find((pair) => pair.startsWith("SPC_U="))?.slice("SPC_U=".length) ?? "";
  return { digest: await sessionDigest(cookie), user };
}

async function sessionDigest(cookie) {
  const parts = cookie.split("; ").filter((pair) => isSessionCookie({ name: pair.split("=")[0] }));
  const bytes = new TextEncoder().encode(parts.sort().join("; "));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Return whether the cookie is to be sent: "now", "later" (in `waitMs`), "never", or "ask" first.
 *
 * `account` is the answer of GET /api/account, `sent` what was sent last: {digest, user, at} or
 * undefined.
 */
export function decide({ account, sent, digest, user, now }) {
  if (account.cookie.stored && sent && sent.user !== user) return { when: "ask" };
  const isWanted =
    !account.cookie.stored || account.accounts.some(({ state }) => state === "session_lost");
  const isSame = sent?.digest === digest;
  if (isWanted) return isSame && account.cookie.stored ? { when: "never" } : { when: "now" };
  if (isSame) return { when: "never" };
  const waitMs = sent ? sent.at + AT_MOST_EVERY_MS - now : 0;
  return waitMs > 0 ? { when: "later", waitMs } : { when: "now" };
}

/**
 * Send the cookie. Returns {outcome: "synced" | "paused" | "otherAccount"}. Throws DaemonError.
 *
 * The daemon refuses another account's cookie with 409 until `replaceAccount` is true.
 */
export async function send(pairing, cookie, { replaceAccount = false } = {}) {
  try {
    const answer = await call(pairing, "POST", "/api/sync-cookie", {
      cookie,
      ...(replaceAccount ? { replaceAccount } : {}),
    });
    return { outcome: answer.paused ? "paused" : "synced" };
  } catch (error) {
    if (error instanceof DaemonError && error.status === 409) return { outcome: "otherAccount" };
    throw error;
  }
}
