// Requests to the daemon. The session is a cookie that no script can read.

import { signal } from "./ui.js";
import { parse } from "./json.js";
import { t } from "./i18n.js";

// "unknown" or "offline" until the daemon has answered once, then "in" or "out".
export const session = signal("unknown");
// Why the owner has to log in again; "" where nobody was logged in.
export const ended = signal("");

export class Failure extends Error {
  // `status` is 0 when the daemon gave no answer. `retryAfter` is in seconds, or null.
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }

  // True if the same request may succeed later.
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

// Send a request and return its response, whatever its status.
export async function send(path, { method, body, headers = {}, signal: abort } = {}) {
  const sent = { ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  try {
    return await fetch(addressOf(path), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: sent,
      signal: abort,
      cache: "no-store",
      credentials: "same-origin",
      // On plain http it is how the daemon knows that a GET is the page's own.
      referrerPolicy: "same-origin",
      redirect: "error",
    });
  } catch (fault) {
    if (abort?.aborted) throw fault;
    throw new Failure(0, t("error.unreachable"));
  }
}

// Return what the daemon answers. A lost session leads to the login.
export async function ask(path, options) {
  return answerOf(await sendAsOwner(path, options));
}

// The same for an answer that is no JSON.
export async function sendAsOwner(path, options) {
  const response = await send(path, options);
  if (response.ok) {
    // An answer to a request from before a log-out may come after it.
    if (session.value !== "out") session.value = "in";
    return response;
  }
  // On a crew's path 401 says what 403 says elsewhere.
  if (response.status === (path.startsWith("crews/") ? 401 : 403)) {
    if (session.value === "in") ended.value = t("error.signedOut");
    session.value = "out";
    throw new Failure(response.status, t("error.signedOut"));
  }
  throw await failureOf(response);
}

export async function answerOf(response) {
  if (!response.ok) throw await failureOf(response);
  return response.text().then(parse).catch(brokeOff);
}

// Both failure bodies of the daemon: `error` alone, and `error` with `message`.
export async function failureOf(response) {
  const body = await response.json().catch(() => ({}));
  const seconds = Number(response.headers.get("Retry-After"));
  const text = body.message ?? body.error ?? t("error.http", { status: response.status });
  // Without a body of the daemon's it is a proxy that says so, such as while the daemon restarts.
  const status = body.error || response.status < 500 ? response.status : 0;
  return new Failure(status, text, seconds || null);
}

export function brokeOff(fault) {
  if (fault.name === "AbortError") throw fault;
  throw new Failure(0, t("error.brokeOff"));
}

// The page lies in a folder of its own, one below the API's.
export function addressOf(path) {
  return new URL(`../${path}`, document.baseURI).href;
}
