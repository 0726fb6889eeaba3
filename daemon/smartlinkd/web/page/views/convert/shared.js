// Text that another app shared with the installed page, by the manifest's `share_target`.

import { draft } from "./job.js";

// Put it into the box, and take it out of the address. Nothing is converted until the button is
// pressed: any site can open an address.
export function takeShared() {
  const query = new URLSearchParams(location.search);
  const parts = ["title", "text", "url"].map((name) => query.get(name)?.trim()).filter(Boolean);
  if (!location.search) return;
  // Many apps repeat the address in the text.
  const text = parts.filter((part, at) => !parts.some((other, place) => place !== at && other.includes(part) && (other !== part || place < at)));
  if (text.length) draft.value = text.join("\n");
  history.replaceState(null, "", location.pathname + (text.length ? "#/convert" : location.hash));
}
