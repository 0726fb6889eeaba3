// Copying to the clipboard and saying so, inside the tab that the person looks at.

/**
 * Show `note` in the tab; when `ok`, put `text` on the clipboard first. Returns {ok, text}.
 *
 * A tab in which no script may run, such as the browser's own pages, counts as not copied.
 */
export async function copyInTab(tab, { ok, text, note }) {
  const script = { target: { tabId: tab.id }, func: copyAndTell, args: [ok ? text : "", note] };
  const [{ result }] = await chrome.scripting.executeScript(script).catch(() => [{ result: false }]);
  return { ok: ok && result, text };
}

// This function runs in the page, so it uses nothing from outside of it.
async function copyAndTell(text, note) {
  let isCopied = false;
  if (text) {
    try {
      await navigator.clipboard.writeText(text);
      isCopied = true;
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      isCopied = document.execCommand("copy");
      field.remove();
    }
  }
  const box = document.createElement("div");
  box.setAttribute("role", "status");
  box.textContent = note;
  box.dataset.smartlinkd = text ? "copied" : "refused";
  box.style.cssText =
    "position:fixed;z-index:2147483647;right:16px;bottom:16px;max-width:360px;padding:12px 16px;" +
    "border-radius:8px;background:#1f2328;color:#fff;font:14px/1.4 system-ui,sans-serif";
  document.body.append(box);
  setTimeout(() => box.remove(), 5_000);
  return isCopied;
}
