// The pop-up: how the account stands, since when the cookie is synced, and what to do.

import { show as translate, text } from "./texts.js";

const element = (id) => document.getElementById(id);
const shown = {
  sync: (kind) => kind !== "notPaired",
  copy: (kind) => kind === "active" || kind === "paused",
  open: (kind) => kind !== "notPaired",
  pair: (kind) => kind === "notPaired" || kind === "refused",
  unpair: (kind) => kind !== "notPaired",
  replace: (kind) => kind === "otherAccount",
};

translate(document);
const stored = await chrome.storage.local.get(["pairing", "state"]);
render(stored.state ?? { kind: "notPaired" });
act("look");

element("sync").addEventListener("click", () => act("sync"));
element("replace").addEventListener("click", () => act("replace"));
element("unpair").addEventListener("click", () => act("unpair"));
element("pair").addEventListener("click", () => chrome.tabs.create({ url: "pair.html" }));
element("open").addEventListener("click", () => chrome.tabs.create({ url: `${stored.pairing.url}/` }));
element("copy").addEventListener("click", async () => {
  const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });
  const { text: told } = await chrome.runtime.sendMessage({ act: "copy", url: tab.url, tabId: tab.id });
  element("message").textContent = told;
});

async function act(name) {
  document.body.setAttribute("aria-busy", "true");
  const state = await chrome.runtime.sendMessage({ act: name });
  document.body.removeAttribute("aria-busy");
  render(state);
}

function render({ kind, syncedAt, account, message }) {
  document.body.dataset.kind = kind;
  element("state").textContent = text(`state_${kind}`);
  const since = syncedAt ? new Date(syncedAt).toLocaleString() : "";
  element("since").textContent = since ? text("syncedSince", account ?? "", since) : "";
  element("message").textContent = message ?? "";
  for (const [id, isShown] of Object.entries(shown)) element(id).hidden = !isShown(kind);
}
