// The events of an execution, oldest first, as they come.

import { element } from "./dom.js";
import { shown } from "./json.js";

const SHOWN = 500; // the newest; a browser grows slow with the 10 000 that there can be
const GIST = 200; // characters
// With these a question is over: it was answered, or all begins again.
const OVER = ["human_feedback_received", "crew_execution_requeued"];
const TELLING = ["error", "prompt", "text", "thought", "tool", "name", "task_id", "agent", "status", "output"];
const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export class EventList {
  constructor() {
    this.last = ""; // the number of the newest
    this.asked = null; // the latest question to a human: its event's data, its number, and `began`
    this.began = null; // when this run did, by the clock of `started_at`
    this.list = element("ol", { class: "events" });
    this.dropped = element(
      "p",
      { class: "faint", hidden: true },
      `Only the newest ${SHOWN} are shown; /events has all of them.`,
    );
    this.none = element("p", { class: "faint" }, "None so far.");
    this.node = element("div", {}, this.none, this.dropped, this.list);
  }

  add({ id, type, timestamp, data }) {
    this.last = id;
    if (type === "crew_kickoff_started") this.began = timestamp;
    if (type === "human_input_requested") this.asked = { ...data, number: id, began: this.began };
    if (OVER.includes(type)) this.asked = null; // whoever answered
    this.none.hidden = true;
    this.list.append(line(type, timestamp, data));
    if (this.list.childElementCount > SHOWN) {
      this.list.firstElementChild.remove();
      this.dropped.hidden = false;
    }
  }
}

function line(type, timestamp, data) {
  const words = [
    element("time", { datetime: timestamp }, TIME.format(new Date(timestamp))),
    " ",
    element("code", {}, type),
    " ",
    element("span", { class: "faint" }, gist(data)),
  ];
  if (Object.keys(data).length === 0) return element("li", {}, ...words);
  const more = element("details", {}, element("summary", {}, ...words));
  // Made when it is looked at: some are large, and there may be many.
  more.addEventListener("toggle", () => more.append(element("pre", {}, shown(data))), { once: true });
  return element("li", {}, more);
}

// What of the data says the most, in a line.
function gist(data) {
  const words = TELLING.map((key) => data[key]).filter((value) => typeof value === "string");
  const text = [...new Set(words)].join(" · ").replace(/\s+/g, " ");
  return text.length > GIST ? `${text.slice(0, GIST)}…` : text;
}
