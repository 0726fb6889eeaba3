// Copying text. `navigator.clipboard` is missing on a page that came over plain HTTP.

import { t } from "./i18n.js";

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copySelected(text)) throw new Error(t("error.copy"));
  }
}

function copySelected(text) {
  const held = document.createElement("textarea");
  held.value = text;
  held.readOnly = true;
  held.className = "away";
  const before = document.activeElement;
  // Within an open dialog nothing outside of it can be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(held);
  held.select();
  const isCopied = document.execCommand("copy");
  held.remove();
  before?.focus();
  return isCopied;
}
