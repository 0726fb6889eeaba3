// The place within the page, which the address behind `#` says.

import { signal } from "./ui.js";

export const route = signal(parse(location.hash));

addEventListener("hashchange", () => (route.value = parse(location.hash)));

function parse(hash) {
  const [path, query] = hash.replace(/^#?\/?/, "").split("?");
  try {
    return { steps: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
  } catch {
    return { steps: ["?"], query: new URLSearchParams() }; // leads to "not found"
  }
}

// placeOf("crews", name, { state: "FAILED" })
export function placeOf(...steps) {
  const query = typeof steps.at(-1) === "object" ? steps.pop() : {};
  const given = Object.entries(query).filter(([, value]) => value);
  const text = new URLSearchParams(given).toString();
  return `#/${steps.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(...steps) {
  location.hash = placeOf(...steps);
}

// Change the place without a step in the history, as a filter does while it is typed.
export function replace(...steps) {
  history.replaceState(null, "", placeOf(...steps));
  route.value = parse(location.hash);
}
