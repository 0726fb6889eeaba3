// JSON that keeps what it says.

// A number that a double cannot hold, such as an id of 64 bits, stays as it was written. A browser
// without `JSON.rawJSON` rounds it.
export function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !isHeld(value) && JSON.rawJSON ? JSON.rawJSON(context.source) : value,
  );
}

function isHeld(number) {
  return Number.isInteger(number) ? Number.isSafeInteger(number) : Number.isFinite(number);
}

export function shown(value) {
  return JSON.stringify(value, null, 2);
}
