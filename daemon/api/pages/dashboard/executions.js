// The Executions tab: newest first, live, by state, page by page.

import { crewNamed, heading } from "./crews.js";
import { Crew } from "./crew.js";
import { badge, element, link, placeOf, reconcile } from "./dom.js";
import { moment, took } from "./times.js";
import { regularly } from "./waiting.js";

const EVERY = 2000; // milliseconds
const PAGE = 20;
const LONGEST = 80; // characters
const STATES = ["PENDING", "RUNNING", "SUCCESS", "FAILED"];

export async function executionsView(arrive, signal, name, query) {
  const entry = await crewNamed(name, signal);
  const crew = new Crew(entry);
  const [state, cursor] = [query.get("state") ?? "", query.get("cursor") ?? ""];
  const rows = element("tbody");
  const none = element("p", { class: "faint", hidden: true }, "There are none.");
  const pages = element("nav", { class: "actions", "aria-label": "Pages" });
  let arrived = false;
  await regularly(EVERY, signal, async () => {
    const answer = await crew.executions({ state, cursor, limit: PAGE, signal });
    // Without what differs at each look while it runs: the page counts that by itself.
    const found = answer.executions.map(({ execution_time: _, ...one }) => one);
    reconcile(rows, found, (one) => one.kickoff_id, (one) => row(name, one));
    none.hidden = answer.executions.length > 0;
    const next = answer.next_cursor ?? "";
    reconcile(pages, turns(name, state, cursor, next), ([text]) => text, turn);
    if (arrived) return;
    arrive(`Executions of ${name}`, ...heading(entry, "executions"), filter(name, state),
      table(rows), none, pages);
    arrived = true;
  });
}

function placeIn(name, state, cursor) {
  const query = new URLSearchParams({ ...(state && { state }), ...(cursor && { cursor }) });
  const text = query.toString();
  return placeOf("crews", name, "executions") + (text ? `?${text}` : "");
}

function turns(name, state, cursor, next) {
  return [
    ...(cursor ? [["Newest", placeIn(name, state, "")]] : []),
    ...(next ? [["Older", placeIn(name, state, next)]] : []),
  ];
}

// A cursor is another one at each look, also when it leads to the same place.
function turn([text, href], old) {
  const made = old ?? element("a", { class: "button quiet" }, text);
  made.href = href;
  return made;
}

function filter(name, state) {
  const options = ["", ...STATES].map((each) =>
    element("option", { value: each, selected: each === state }, each || "all"),
  );
  const select = element("select", { id: "state" }, ...options);
  select.addEventListener("change", () => (location.hash = placeIn(name, select.value, "")));
  return element("p", { class: "filter" }, element("label", { for: "state" }, "State"), select);
}

function table(rows) {
  const names = ["State", "Execution", "Created", "Took", "How it stands"];
  const head = names.map((name) => element("th", { scope: "col" }, name));
  return element(
    "table",
    { class: "executions" },
    element("thead", {}, element("tr", {}, ...head)),
    rows,
  );
}

function row(name, one) {
  const cell = (label, ...content) => element("td", { "data-label": label }, ...content);
  return element(
    "tr",
    {},
    cell("State", stateBadge(one)),
    cell("Execution", link(one.kickoff_id.slice(0, 8), "crews", name, "executions", one.kickoff_id)),
    cell("Created", moment(one.created_at)),
    cell("Took", took(one.started_at, one.finished_at)),
    cell("", element("span", { class: "faint" }, standing(one))),
  );
}

// In a line: why it failed, or how far it has come.
function standing({ state, error, current_task: current, progress }) {
  if (state === "FAILED") return cut(error ?? "");
  const { completed_tasks: completed, total_tasks: total } = progress;
  const done = completed ? `${completed} of ${total} tasks done` : "";
  return [done, state === "RUNNING" ? cut(current ?? "") : ""].filter(Boolean).join("; ");
}

function cut(text) {
  const line = text.split("\n", 1)[0];
  return line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line;
}

export function stateBadge({ state, status }) {
  return badge(status.replaceAll("_", " "), state.toLowerCase());
}
