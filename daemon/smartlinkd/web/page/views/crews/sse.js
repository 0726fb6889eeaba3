// Server-sent events over fetch: EventSource cannot be given the id to begin after.

import { brokeOff } from "../../lib/api.js";

// The events of a response's body, as {id, data}, in the order they come (HTML standard, 9.2.6).
export async function* eventsOf(body) {
  let [id, data] = ["", []];
  for await (const line of linesOf(body)) {
    if (line === "") {
      if (data.length) yield { id, data: data.join("\n") };
      data = [];
      continue;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "data") data.push(value);
    else if (name === "id") id = value;
  }
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(brokeOff);
      if (done) return; // a line without its end is not one
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      yield* lines;
    }
  } finally {
    reader.cancel().catch(() => {}); // it has ended, or was given up: nobody is left to tell
  }
}
