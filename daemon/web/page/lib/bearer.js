// For a daemon that does not answer `"session": "cookie"` with a cookie yet: its session token, in
// memory alone. To be deleted, with its uses, when it does.

import { ask } from "./api.js";

export function takeToken(token) {
  globalThis.sessionToken = token;
}

// A crew's token outlives the session, so it is asked for each time.
export async function addBearer(path, headers) {
  if (!globalThis.sessionToken) return;
  const crew = /^crews\/([^/]+)/.exec(path)?.[1];
  headers.Authorization = `Bearer ${crew ? await tokenOf(decodeURIComponent(crew)) : globalThis.sessionToken}`;
}

async function tokenOf(crew) {
  return (await ask("api/crews/token", { body: { crew } })).token;
}
