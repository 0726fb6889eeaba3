// A crew's own API, called with its organization token.

import { parse } from "./json.js";
import { answerOf, brokeOff, failureOf, forgetTokenOf, request, tokenOf } from "./session.js";
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
      const url = new URL(reference.replace(/^\//, "./"), document.baseURI);
      // It listens everywhere: then it is where this page is.
      if (["0.0.0.0", "[::]"].includes(url.hostname)) url.hostname = location.hostname;
      return url.href.replace(/\/$/, "");
    });
  }

  async healthy(signal) {
    const response = await this.send("/", { signal });
    return (await response.text().catch(brokeOff)).trim();
  }

  // Once for each `key`, however often it is sent.
  async kickoff(inputs, key) {
    return (await this.act("/kickoff", { inputs }, { "Idempotency-Key": key })).kickoff_id;
  }

  async status(id, signal) {
    return this.json(`/status/${encodeURIComponent(id)}`, { signal });
  }

  async executions({ state, cursor, limit, signal }) {
    const query = new URLSearchParams({ limit });
    if (state) query.set("state", state);
    if (cursor) query.set("cursor", cursor);
    return this.json(`/executions?${query}`, { signal });
  }

  async stop(id) {
    return this.act(`/stop/${encodeURIComponent(id)}`);
  }

  async resume(id, taskId, feedback, approve) {
    const body = {
      execution_id: id,
      task_id: taskId,
      human_feedback: feedback,
      is_approve: approve,
    };
    return this.act("/resume", body);
  }

  // Events behind the one numbered `after`, as {id, type, timestamp, data}, until it has ended.
  async *events(id, after, signal) {
    const headers = { Accept: "text/event-stream" };
    if (after) headers["Last-Event-ID"] = after;
    const response = await this.send(`/events/${encodeURIComponent(id)}`, { headers, signal });
    for await (const { id: number, data } of eventsOf(response.body)) {
      yield { id: number, ...parse(data) };
    }
  }

  // Something that cannot be undone.
  async act(path, body, headers = {}) {
    forgetTokenOf(this.name); // so that it is asked for, and with it whether the session is there
    return this.json(path, { method: "POST", body, headers });
  }

  async json(path, options) {
    return answerOf(await this.send(path, options));
  }

  async send(path, options) {
    let response = await this.sendOnce(path, options);
    if (response.status === 401) {
      forgetTokenOf(this.name); // rotated by somebody else meanwhile
      response = await this.sendOnce(path, options);
    }
    if (!response.ok) throw await failureOf(response);
    return response;
  }

  async sendOnce(path, { headers = {}, ...options }) {
    const Authorization = `Bearer ${await tokenOf(this.name)}`;
    return request(this.path + path, { ...options, headers: { ...headers, Authorization } });
  }
}
