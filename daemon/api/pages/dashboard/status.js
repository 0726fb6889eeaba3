// The Status tab: where a crew is, who may call it, and how.

import { crewNamed, heading } from "./crews.js";
import { Crew } from "./crew.js";
import { action, badge, block, confirmed, copyButton, element, section, titled } from "./dom.js";
import { Failure, rotate, tokenOf } from "./session.js";
import { regularly } from "./waiting.js";

const EVERY = 5000; // milliseconds
const MASK = "•".repeat(24);

export async function statusView(arrive, signal, name) {
  const entry = await crewNamed(name, signal);
  const crew = new Crew(entry);
  const health = element("p", { role: "status" }, element("span", { class: "faint" }, "Asking…"));
  arrive(
    name,
    ...heading(entry, ""),
    section("Health", health),
    section("Base address", addresses(crew)),
    section(
      "Tokens",
      element("p", { class: "faint" }, "Clients send one of these as “Authorization: Bearer …”."),
      tokens(entry),
    ),
    section("Commands", ...commands(crew)),
  );
  await regularly(EVERY, signal, async () => tell(health, await healthOf(crew, signal)));
}

async function healthOf(crew, signal) {
  try {
    return [badge(await crew.healthy(signal), "success")];
  } catch (fault) {
    if (!(fault instanceof Failure)) throw fault;
    return [badge("not healthy", "failed"), element("span", {}, ` ${fault.message}`)];
  }
}

// What is put in anew is read out anew.
function tell(place, words) {
  const text = words.map((word) => word.textContent).join("");
  if (place.textContent !== text) place.replaceChildren(...words);
}

function addresses(crew) {
  const lines = crew
    .addresses()
    .map((address) =>
      element("li", { class: "address" }, element("code", {}, address), copyButton(address, async () => address)),
    );
  return element("ul", { class: "plain" }, ...lines);
}

function tokens(entry) {
  return element(
    "ul",
    { class: "plain tokens" },
    tokenLine(entry.name, "", "Bearer Token", "the organization: everything"),
    ...entry.users.map((user) =>
      tokenLine(entry.name, user, `User Bearer Token: ${user}`, "what this user has started"),
    ),
  );
}

function tokenLine(crew, user, title, scope) {
  const shown = element("code", { class: "token" }, MASK);
  const reveal = action("Reveal", async () => show(shown.textContent === MASK), {
    class: "quiet",
    "aria-pressed": "false",
    "aria-label": `Reveal: ${title}`,
  });
  const show = async (wanted) => {
    shown.textContent = wanted ? await tokenOf(crew, user) : MASK;
    reveal.textContent = wanted ? "Hide" : "Reveal";
    reveal.ariaPressed = String(wanted);
  };
  const renew = async () => {
    const sure = await confirmed(
      `Rotate “${title}”?`,
      "The token so far is refused from then on: every client that has it needs the new one.",
      "Rotate",
    );
    if (!sure) return;
    await rotate(crew, user);
    await show(true);
  };
  return element(
    "li",
    {},
    element("h3", {}, title),
    element("p", { class: "faint" }, scope),
    shown,
    element(
      "div",
      { class: "actions" },
      reveal,
      copyButton(title, () => tokenOf(crew, user)),
      action("Rotate…", renew, { class: "quiet", "aria-label": `Rotate: ${title}` }),
    ),
  );
}

// Commands for a shell. The token is in the first one alone, and only in what is copied.

function commands(crew) {
  const [base] = crew.addresses();
  const given = crew.entry.inputs.filter((input) => input.required || input.default !== null);
  const inputs = Object.fromEntries(given.map((input) => [input.name, input.default ?? "…"]));
  const id = "$KICKOFF_ID";
  // What is printed is the id, or all of what was answered in place of it.
  const keepId = `sed 's/.*"kickoff_id": *"\\([^"]*\\)".*/\\1/'`;
  const start = `KICKOFF_ID=$(${curl(base, "/kickoff", { inputs })} \\\n  | ${keepId})\necho "$KICKOFF_ID"`;
  const made = [
    ["The inputs that it takes", curl(base, "/inputs")],
    ["Start an execution", start],
    ["How it stands, and what came of it", curl(base, `/status/${id}?wait=30`)],
    ["What happens in it, live", curl(base, `/events/${id}`, undefined, "-N ")],
  ];
  return [
    ...snippet("The token", `CREW_TOKEN='${MASK}'`, async () => `CREW_TOKEN='${await tokenOf(crew.name)}'`),
    ...made.flatMap(([title, text]) => snippet(title, text, async () => text)),
    element("p", { class: "faint" }, "Of a crew with required inputs, put yours in the place of each “…”."),
  ];
}

function snippet(title, text, copied) {
  return [
    titled("h3", title, copied),
    block(title, text),
  ];
}

function curl(base, path, body, options = "") {
  // The token is on standard input: every user of a machine can see what is on a command line.
  const lines = [
    `printf 'Authorization: Bearer %s\\n' "$CREW_TOKEN"`,
    `| curl -sS ${options}"${base}${path}" -H @-`,
  ];
  if (body !== undefined) {
    const text = JSON.stringify(body).replaceAll("'", "'\\''");
    lines.push("-H 'Content-Type: application/json'", `-d '${text}'`);
  }
  return lines.join(" \\\n  ");
}
