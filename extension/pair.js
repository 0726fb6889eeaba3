// The pairing tab: takes the pairing string and asks for the hosts that it needs.

import { call, DaemonError } from "./daemon.js";
import { neededOrigins, PairingError, readPairing } from "./pairing.js";
import { show, text } from "./texts.js";

const element = (id) => document.getElementById(id);

show(document);
element("firefox").hidden = !navigator.userAgent.includes("Firefox/");
document.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  element("fault").textContent = "";
  element("done").textContent = "";
  try {
    await pair(element("pairing").value);
    element("pairing").value = "";
    element("done").textContent = text("pairDone");
  } catch (error) {
    element("fault").textContent = describe(error);
  }
});

async function pair(pasted) {
  const pairing = readPairing(pasted);
  // The browser asks the person. It wants this call to come straight from the button.
  const origins = neededOrigins(pairing);
  const isGranted = await chrome.permissions.request({ origins }).catch(() => false);
  if (!isGranted) throw new PairingError("pairingNotGranted");
  await call(pairing, "GET", "/api/account");
  await chrome.storage.local.set({ pairing });
  await chrome.storage.local.remove(["sent", "state"]);
  await chrome.runtime.sendMessage({ act: "look" });
}

function describe(error) {
  if (error instanceof PairingError) return text(error.reason);
  if (error instanceof DaemonError) return error.message || text("state_unreachable");
  throw error;
}
