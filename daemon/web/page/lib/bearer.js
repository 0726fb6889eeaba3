// For a daemon that does not answer `"session": "cookie"` with a cookie yet: its session token, in
// memory alone. To be deleted, with its uses, when it does.

import { ask } from "./api.js";

const tokens = new Map(); // of crews, by name

export function takeToken(token) {
  tokens.clear();
  globalThis.sessionToken = token;
}

export async function addBearer(path, headers) {
  if (!globalThis.sessionToken) return;
  const crew = /^crews\/([^/]+)/.exec(path)?.[1];
  headers.Authorization = `Bearer ${crew ? await tokenOf(decodeURIComponent(crew)) : globalThis.sessionToken}`;
}

async function tokenOf(crew) {
  if (!tokens.has(crew)) tokens.set(crew, (await ask("api/crews/token", { body: { crew } })).token);
  return tokens.get(crew);
}
