// JSON that keeps what it says.

// Numbers that a double cannot hold, such as ids of 64 bits, stay as they were written: shown so,
// and sent so. (A browser that is too old for that rounds them, as all do by themselves.)
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
