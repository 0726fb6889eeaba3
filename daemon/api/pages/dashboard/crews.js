// The list of crews, and what every page of one crew begins with.

import { badge, element, link, placeOf, problem, reconcile } from "./dom.js";
import { ask, Failure } from "./session.js";
import { regularly, untilItWorks } from "./waiting.js";

const EVERY = 3000; // milliseconds

export async function crewsView(arrive, signal) {
  const list = element("ul", { class: "cards" });
  const none = element(
    "p",
    { class: "faint", hidden: true },
    "There are no crews: add one as [[crews]] to the configuration.",
  );
  let arrived = false;
  await regularly(EVERY, signal, async () => {
    const { crews } = await ask("api/crews", { signal });
    // A broken one may have no name; then its place is all that it can be told by.
    const items = crews.map((crew, place) => ({ ...crew, key: crew.name ?? place }));
    reconcile(list, items, (item) => item.key, card);
    none.hidden = crews.length > 0;
    if (!arrived) arrive("Crews", element("h1", {}, "Crews"), list, none);
    arrived = true;
  });
}

function card(crew) {
  const name = crew.name ? link(crew.name, "crews", crew.name) : "(no name)";
  return element(
    "li",
    {},
    element("h2", {}, name, ...badges(crew)),
    ...(crew.problems.length ? [problems(crew)] : []),
    element("p", { class: "faint" }, work(crew)),
  );
}

function badges(crew) {
  return [
    ...(crew.default ? [" ", badge("default", "plain")] : []),
    ...(crew.problems.length ? [" ", badge("broken", "failed")] : []),
  ];
}

function work(crew) {
  const parts = [
    crew.running ? `${crew.running} running` : "",
    crew.queued ? `${crew.queued} queued` : "",
  ].filter(Boolean);
  return parts.join(", ") || (crew.problems.length ? "" : "idle");
}

function problems(crew) {
  return element("ul", { class: "problems" }, ...crew.problems.map((text) => element("li", {}, text)));
}

// One crew.

export async function crewNamed(name, signal) {
  const { crews } = await untilItWorks(signal, () => ask("api/crews", { signal }));
  const found = crews.find((crew) => crew.name === name);
  if (!found) throw new Failure(404, "There is no crew of this name.");
  return found;
}

const TABS = [
  ["Status", ""],
  ["Run", "run"],
  ["Executions", "executions"],
];

export function heading(entry, tab) {
  const tabs = TABS.map(([text, step]) => {
    const href = placeOf("crews", entry.name, ...(step ? [step] : []));
    return element("a", { href, "aria-current": step === tab ? "page" : null }, text);
  });
  return [
    element("h1", {}, entry.name, ...badges(entry)),
    element("nav", { class: "tabs", "aria-label": "Crew" }, ...tabs),
    ...(entry.problems.length
      ? [problem("This crew cannot run. What is missing on its disk is looked for every minute; what has to be edited waits for a reload:"), problems(entry)]
      : []),
  ];
}
