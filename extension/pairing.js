// The pairing string: what the page gives out and the pairing tab takes.
//
// It is "smartlinkd-pair:" and base64url of JSON: {url, key, shop, portal}. `url` is the daemon's
// address, `key` an API key, `shop` and `portal` the origins whose cookies are synced.

const PREFIX = "smartlinkd-pair:";
const LOOPBACK = new Set(["127.0.0.1", "localhost"]);

export class PairingError extends Error {
  /** `reason` is the key of a text in `_locales`. */
  constructor(reason) {
    super(reason);
    this.reason = reason;
  }
}

/** Return {url, key, shop, portal} of a pairing string. Throws PairingError. */
export function readPairing(text) {
  const trimmed = text.trim();
  if (!trimmed.startsWith(PREFIX)) throw new PairingError("pairingNotOurs");
  let given;
  try {
    const base64 = trimmed.slice(PREFIX.length).replaceAll("-", "+").replaceAll("_", "/");
    given = JSON.parse(atob(base64));
  } catch {
    throw new PairingError("pairingDamaged");
  }
  const origins = ["url", "shop", "portal"].map((name) => origin(given[name]));
  if (origins.includes(null) || typeof given.key !== "string" || !given.key.startsWith("slk_")) {
    throw new PairingError("pairingDamaged");
  }
  const [daemon, shop, portal] = origins;
  if (!isSafe(daemon)) throw new PairingError("pairingPlainHttp");
  // A proxy may serve the daemon below a path.
  const url = daemon + new URL(given.url).pathname.replace(/\/$/, "");
  return { url, key: given.key, shop, portal };
}

/** Return the host permissions that a pairing needs, as match patterns without ports. */
export function neededOrigins({ url, shop, portal }) {
  const patterns = [url, shop, portal].map((each) => {
    const { protocol, hostname } = new URL(each);
    return `${protocol}//${hostname}/*`;
  });
  return [...new Set(patterns)];
}

function isSafe(url) {
  const { protocol, hostname } = new URL(url);
  return protocol === "https:" || LOOPBACK.has(hostname);
}

function origin(text) {
  try {
    const { protocol, origin: found } = new URL(text);
    return protocol === "https:" || protocol === "http:" ? found : null;
  } catch {
    return null;
  }
}
