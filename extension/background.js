// The extension's events: cookies that change, a minute's alarm, menus, the shortcut, the pop-up.

import { call, DaemonError } from "./daemon.js";
import { copyInTab } from "./copying.js";
import { decide, identify, isSessionCookie, readCookie, send } from "./sync.js";

const ALARM = "look";
const EVERY_MINUTES = 1;
const SETTLE_MS = 1_000; // a login sets several cookies
const BADGES = {
  active: ["", "#1a7f37"],
  notPaired: ["", "#6e7781"],
  noCookie: ["!", "#9a6700"],
  session_lost: ["!", "#cf222e"],
  paused: ["||", "#cf222e"],
  otherAccount: ["?", "#9a6700"],
  refused: ["x", "#cf222e"],
  unreachable: ["…", "#6e7781"],
};

let settling;
let looking = Promise.resolve();

chrome.runtime.onInstalled.addListener(start);
chrome.runtime.onStartup.addListener(start);
chrome.alarms.onAlarm.addListener(() => look());
chrome.cookies.onChanged.addListener(({ cookie }) => {
  if (!isSessionCookie(cookie)) return;
  clearTimeout(settling);
  settling = setTimeout(() => look(), SETTLE_MS);
});
chrome.contextMenus.onClicked.addListener((info, tab) => copyLink(info.linkUrl ?? info.pageUrl, tab));
chrome.commands.onCommand.addListener((command, tab) => {
  if (command === "copy-link") copyLink(tab?.url, tab);
});
chrome.runtime.onMessage.addListener((message, _sender, answer) => {
  const acts = {
    look: () => look(),
    sync: () => look({ isAsked: true }),
    replace: () => look({ isAsked: true, replaceAccount: true }),
    unpair,
    copy: () => copyLink(message.url, { id: message.tabId }),
  };
  if (!(message.act in acts)) return false;
  acts[message.act]().then(answer);
  return true; // the answer comes later
});

async function start() {
  await chrome.contextMenus.removeAll();
  const title = chrome.i18n.getMessage("copyLink");
  chrome.contextMenus.create({ id: "copy-link", title, contexts: ["link", "page"] });
  await chrome.alarms.create(ALARM, { periodInMinutes: EVERY_MINUTES });
  await look();
}

/** Look at the account, and sync when that is due. One look at a time; returns the new state. */
function look(options = {}) {
  looking = looking.catch(() => {}).then(() => lookOnce(options)); // after a failure, too
  return looking;
}

async function lookOnce({ isAsked = false, replaceAccount = false }) {
  const { pairing, sent, state: before } = await chrome.storage.local.get(["pairing", "sent", "state"]);
  if (!pairing) return show({ kind: "notPaired" });
  try {
    const account = await call(pairing, "GET", "/api/account");
    const cookie = await readCookie(pairing);
    if (!cookie) return show({ ...describe(account), ...(await loggedOut(account)) });
    const { digest, user } = await identify(cookie);
    const now = Date.now();
    const decision = isAsked ? { when: "now" } : decide({ account, sent, digest, user, now });
    const isAskedAbout = before?.kind === "otherAccount" && before.digest === digest && !isAsked;
    if (isAskedAbout || decision.when === "ask") return show({ kind: "otherAccount", digest });
    if (decision.when === "later") {
      await chrome.alarms.create("later", { delayInMinutes: decision.waitMs / 60_000 });
    }
    if (decision.when !== "now") return show(describe(account));
    const { outcome } = await send(pairing, cookie, { replaceAccount });
    if (outcome === "otherAccount") return show({ kind: "otherAccount", digest });
    await chrome.storage.local.set({ sent: { digest, user, at: now } });
    return show(describe(await call(pairing, "GET", "/api/account")));
  } catch (error) {
    if (!(error instanceof DaemonError)) throw error;
    const kind = error.status === 403 || error.status === 401 ? "refused" : "unreachable";
    return show({ kind, message: error.message });
  }
}

/** Return how the account stands, as the pop-up and the badge show it. */
function describe({ cookie, accounts }) {
  const troubled = accounts.find(({ state }) => state !== "active");
  const kind = !cookie.stored ? "noCookie" : (troubled?.state ?? "active");
  return {
    kind,
    account: cookie.accountName ?? null,
    syncedAt: cookie.syncedAt ?? null,
    message: troubled?.remedy ?? "",
  };
}

async function loggedOut({ accounts }) {
  const isTroubled = accounts.some(({ state }) => state !== "active");
  return isTroubled ? {} : { kind: "noCookie", message: chrome.i18n.getMessage("loggedOut") };
}

async function show(state) {
  const [text, color] = BADGES[state.kind];
  await chrome.action.setBadgeText({ text });
  await chrome.action.setBadgeBackgroundColor({ color });
  await chrome.action.setTitle({ title: `smartlinkd: ${chrome.i18n.getMessage(`state_${state.kind}`)}` });
  await chrome.storage.local.set({ state });
  return state;
}

async function unpair() {
  const { pairing } = await chrome.storage.local.get("pairing");
  if (pairing) await call(pairing, "DELETE", "/api/keys/self").catch(() => {});
  await chrome.storage.local.clear();
  return show({ kind: "notPaired" });
}

/** Convert a link and put the short one on the clipboard. Returns {ok, text}. */
async function copyLink(url, tab) {
  const { pairing } = await chrome.storage.local.get("pairing");
  const tell = (ok, text) => copyInTab(tab, { ok, text, note: ok ? note("copied", text) : text });
  const note = (key, ...words) => chrome.i18n.getMessage(key, words);
  if (!pairing) return tell(false, note("state_notPaired"));
  try {
    const { mapping } = await call(pairing, "POST", "/api/convert", { links: [url ?? ""] });
    const [entry] = Object.values(mapping);
    if (entry.shortLink) return tell(true, entry.shortLink);
    return tell(false, note(entry.failCode === 10 ? "notAProduct" : "notConverted"));
  } catch (error) {
    if (!(error instanceof DaemonError)) throw error;
    return tell(false, error.message || note("state_unreachable"));
  }
}
