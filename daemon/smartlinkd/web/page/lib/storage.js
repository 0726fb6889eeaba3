// What the browser keeps for the page: never a cookie, token, password or code.

const PREFIX = "smartlinkd.";

// `area` is localStorage or sessionStorage. A private window may have neither.
export function read(area, key, fallback = null) {
  try {
    return JSON.parse(area.getItem(PREFIX + key)) ?? fallback;
  } catch {
    return fallback;
  }
}

// Returns false when there was no room for it.
export function write(area, key, value) {
  try {
    area.setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function remove(area, key) {
  try {
    area.removeItem(PREFIX + key);
  } catch {
    // Nothing was kept either.
  }
}
