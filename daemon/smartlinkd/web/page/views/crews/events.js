// The events of a run, oldest first, as they come.

import { html, useEffect, useRef, useState } from "../../lib/ui.js";
import { session } from "../../lib/api.js";
import { clock, number, t } from "../../lib/i18n.js";
import { shown } from "../../lib/json.js";
import { pause, untilItWorks, whileSeen } from "../../lib/polling.js";
import { Faint, Section } from "../../components/text.js";
import { ENDED } from "./crew.js";

const SHOWN = 500; // the newest; a browser grows slow with the 10 000 that there can be
const GIST = 200; // characters
const AT_MOST = 5; // seconds until a stream that was closed is opened again
// With these a question is over: it was answered, or all begins again.
const OVER = ["human_feedback_received", "crew_execution_requeued"];
const TELLING = ["error", "prompt", "text", "thought", "tool", "name", "task_id", "agent", "status", "output"];
const EMPTY = { list: [], dropped: 0, asked: null, began: null, tokens: null };

// { list, dropped, asked, began, tokens }. `asked` is the latest question to a human: its event's data, its
// number, and when the run began that it belongs to.
export function useEvents(crew, id, status, changed) {
  const [events, setEvents] = useState(EMPTY);
  const last = useRef(""); // the latest event's id; `events` of a render may be behind
  const hasEnded = Boolean(status && ENDED.includes(status.state));
  useEffect(() => {
    if (session.value !== "in") return undefined;
    const left = new AbortController();
    const { signal } = left;
    const listen = async (here) => {
      for await (const event of crew.events(id, last.current, here)) {
        last.current = event.id;
        setEvents((before) => withEvent(before, event));
        changed();
      }
      return true;
    };
    const loop = async () => {
      for (;;) {
        const isWhole = await untilItWorks(signal, () => whileSeen(signal, listen));
        if (hasEnded && isWhole) return; // it was opened when the end was known: this was all
        if (isWhole) await pause(AT_MOST, signal);
      }
    };
    loop().catch(() => {}); // left, or told by the status, which asks the same daemon
    return () => left.abort();
  }, [crew.name, id, hasEnded, session.value]);
  return events;
}

function withEvent(before, event) {
  const { id, type, timestamp, data } = event;
  const list = [...before.list, event];
  const began = type === "crew_kickoff_started" ? timestamp : before.began;
  const question = type === "human_input_requested" ? { ...data, number: id, began } : before.asked;
  return {
    list: list.slice(-SHOWN),
    dropped: before.dropped + Math.max(0, list.length - SHOWN),
    asked: OVER.includes(type) ? null : question,
    began,
    tokens: usageOf(data) ?? before.tokens,
  };
}

// What a worker tells of its model's tokens, under the names that CrewAI has for it.
function usageOf(data) {
  const usage = data?.token_usage ?? data?.usage_metrics;
  const total = usage?.total_tokens ?? (typeof usage === "number" ? usage : undefined);
  return typeof total === "number" ? number(total) : null;
}

export function Events({ events }) {
  return html`
    <${Section} title=${t("events.title")}>
      ${!events.list.length && html`<${Faint}>${t("events.none")}<//>`}
      ${events.dropped > 0 && html`<${Faint}>${t("events.dropped", { count: SHOWN })}<//>`}
      <ol class="events">${events.list.map((event) => html`<${Line} key=${event.id} event=${event} />`)}</ol>
    <//>
  `;
}

function Line({ event }) {
  const [isOpen, setOpen] = useState(false);
  const { type, timestamp, data } = event;
  const words = html`<time datetime=${timestamp}>${clock(timestamp)}</time> <code>${type}</code> <span class="faint">${gist(data)}</span>`;
  if (!Object.keys(data ?? {}).length) return html`<li>${words}</li>`;
  // Its data is made when it is looked at: some are large, and there may be many.
  return html`
    <li>
      <details onToggle=${(toggled) => setOpen(toggled.target.open)}>
        <summary>${words}</summary>
        ${isOpen && html`<pre>${shown(data)}</pre>`}
      </details>
    </li>
  `;
}

// What of the data says the most, in a line.
function gist(data) {
  const words = TELLING.map((key) => data?.[key]).filter((value) => typeof value === "string");
  const text = [...new Set(words)].join(" · ").replace(/\s+/g, " ");
  return text.length > GIST ? `${text.slice(0, GIST)}…` : text;
}
