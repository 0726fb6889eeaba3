// Commands for a shell. The token is in the first one alone, and only in what is copied.

export const MASK = "•".repeat(24);

// [name, shown text, what is copied where that differs]
export function commands(crew) {
  const [base] = crew.addresses();
  const given = crew.entry.inputs.filter((input) => input.required || input.default !== null);
  const inputs = Object.fromEntries(given.map((input) => [input.name, input.default ?? "…"]));
  const id = "$KICKOFF_ID";
  // What is printed is the id, or all of what was answered in place of it.
  const keepId = `sed 's/.*"kickoff_id": *"\\([^"]*\\)".*/\\1/'`;
  const start = `KICKOFF_ID=$(${curl(base, "/kickoff", { inputs })} \\\n  | ${keepId})\necho "$KICKOFF_ID"`;
  return [
    ["token", `CREW_TOKEN='${MASK}'`, async () => `CREW_TOKEN='${await crew.token("")}'`],
    ["inputs", curl(base, "/inputs")],
    ["kickoff", start],
    ["status", curl(base, `/status/${id}?wait=30`)],
    ["events", curl(base, `/events/${id}`, undefined, "-N ")],
  ];
}

function curl(base, path, body, options = "") {
  // The token is on standard input: every user of a machine can see what is on a command line.
  const lines = [`printf 'Authorization: Bearer %s\\n' "$CREW_TOKEN"`, `| curl -sS ${options}"${base}${path}" -H @-`];
  if (body !== undefined) {
    const text = JSON.stringify(body).replaceAll("'", "'\\''");
    lines.push("-H 'Content-Type: application/json'", `-d '${text}'`);
  }
  return lines.join(" \\\n  ");
}
