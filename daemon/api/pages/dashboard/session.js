// The owner's session, and questions to the daemon. The token is kept for this tab alone, and goes
// with it.

import { parse } from "./json.js";

const KEY = "smartlinkd.session";
// A crew's token is good without a session. So it is asked for again after a while, and before
// anything is done with it: whoever ended all sessions meanwhile has ended this one.
const KEPT = 5000; // milliseconds
const tokens = new Map(); // of crews, and since when; in memory only

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  // Whether it may be gone when the same is asked again.
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

// The session has ended. The window hears of it, too, and asks for the password.
export class SignedOut extends Error {}

export function signedIn() {
  return sessionStorage.getItem(KEY) !== null;
}

export function signIn(token) {
  sessionStorage.setItem(KEY, token);
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  tokens.clear();
}

// A request to a path of the daemon's, which may be below a path of a proxy's.
export async function request(path, { method, body, headers = {}, signal } = {}) {
  const given = { ...headers };
  if (body !== undefined) given["Content-Type"] = "application/json";
  try {
    return await fetch(new URL(path, document.baseURI), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: given,
      signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new Failure(0, "The daemon cannot be reached.");
  }
}

// What a failure's body says, in either of the two forms that the daemon has.
export async function failureOf(response) {
  const body = await response.json().catch(() => ({}));
  const text = body.message ?? body.error ?? `HTTP ${response.status}`;
  return new Failure(response.status, text);
}

export async function answerOf(response) {
  if (!response.ok) throw await failureOf(response);
  return response.text().then(parse).catch((fault) => brokeOff(fault));
}

export function brokeOff(fault) {
  if (fault.name === "AbortError") throw fault;
  throw new Failure(0, "The connection to the daemon broke off.");
}

// Login needs no session: what is refused there is the caller's to tell.
export async function logIn(path, body) {
  return answerOf(await request(path, { body }));
}

// A question that only the owner may ask.
export async function ask(path, { body, signal } = {}) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  const response = await request(path, { body, headers, signal });
  if (response.status === 403) {
    signOut();
    dispatchEvent(new Event("signedout"));
    throw new SignedOut("The session has ended: log in again.");
  }
  return answerOf(response);
}

// The tokens of crews.

export async function tokenOf(crew, user = "") {
  const held = tokens.get(keyOf(crew, user));
  if (held && performance.now() - held.since < KEPT) return held.token;
  return keep(crew, user, await ask("api/crews/token", { body: { crew, user } }));
}

export async function rotate(crew, user = "") {
  return keep(crew, user, await ask("api/crews/token/rotate", { body: { crew, user } }));
}

export function forgetTokenOf(crew) {
  tokens.delete(keyOf(crew, ""));
}

function keep(crew, user, { token }) {
  tokens.set(keyOf(crew, user), { token, since: performance.now() });
  return token;
}

function keyOf(crew, user) {
  return JSON.stringify([crew, user]);
}
