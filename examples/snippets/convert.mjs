// Convert the links of the arguments: node convert.mjs LINK…
// SMARTLINKD_URL and SMARTLINKD_KEY_FILE name the daemon and the file with a key of the scope convert.
import { readFileSync } from "node:fs";

const url = process.env.SMARTLINKD_URL;
const key = readFileSync(process.env.SMARTLINKD_KEY_FILE, "utf8").trim();
const links = process.argv.slice(2);

for (let start = 0; start < links.length; start += 15) {
  const response = await fetch(`${url}/api/convert`, {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify({ links: links.slice(start, start + 15), subIds: ["node"] }),
    signal: AbortSignal.timeout(180_000),
  });
  const body = await response.json();
  if (!response.ok) {
    console.error(body.error);
    process.exit(1);
  }
  for (const [link, entry] of Object.entries(body.mapping)) {
    console.log(link, entry.shortLink ?? `failed: ${entry.failCode}`);
  }
}
