// A crew's own API, which the session opens as its organization token does.

import { ask, brokeOff, sendAsOwner } from "../../lib/api.js";
import { parse } from "../../lib/json.js";
import { eventsOf } from "./sse.js";

export const ENDED = ["SUCCESS", "FAILED"];

export class Crew {
  constructor(entry) {
    this.entry = entry;
    this.name = entry.name;
    this.path = `crews/${encodeURIComponent(entry.name)}`;
  }

  // Its addresses, whole and without a slash at their end.
  addresses() {
    return this.entry.baseUrls.map((reference) => {
      const url = new URL(reference.replace(/^\//, "../"), document.baseURI);
      // It listens everywhere: then it is where this page is.
      if (["0.0.0.0", "[::]"].includes(url.hostname)) url.hostname = location.hostname;
      return url.href.replace(/\/$/, "");
    });
  }

  async healthy(signal) {
    const response = await sendAsOwner(`${this.path}/`, { signal });
    return (await response.text().catch(brokeOff)).trim();
  }

  // Starts one execution for each `key`, however often it is sent.
  async kickoff(inputs, key) {
    const answer = await ask(`${this.path}/kickoff`, { body: { inputs }, headers: { "Idempotency-Key": key } });
    return answer.kickoff_id;
  }

  async status(id, signal) {
    return ask(`${this.path}/status/${encodeURIComponent(id)}?inputs=1`, { signal });
  }

  async executions({ state, cursor, limit, signal }) {
    const query = new URLSearchParams({ limit });
    if (state) query.set("state", state);
    if (cursor) query.set("cursor", cursor);
    return ask(`${this.path}/executions?${query}`, { signal });
  }

  async stop(id) {
    return ask(`${this.path}/stop/${encodeURIComponent(id)}`, { method: "POST" });
  }

  async resume(id, taskId, feedback, approve) {
    const body = { execution_id: id, task_id: taskId, human_feedback: feedback, is_approve: approve };
    return ask(`${this.path}/resume`, { body });
  }

  // The events behind the one numbered `after`, as { id, type, timestamp, data }, until the end.
  async *events(id, after, signal) {
    const headers = { Accept: "text/event-stream" };
    if (after) headers["Last-Event-ID"] = after;
    const response = await sendAsOwner(`${this.path}/events/${encodeURIComponent(id)}`, { headers, signal });
    for await (const { id: number, data } of eventsOf(response.body)) {
      yield { id: number, ...parse(data) };
    }
  }

  async token(user) {
    return (await ask("api/crews/token", { body: { crew: this.name, user } })).token;
  }

  async rotate(user) {
    return (await ask("api/crews/token/rotate", { body: { crew: this.name, user } })).token;
  }
}
