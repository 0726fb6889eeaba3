// The focus is never lost with what had it: a button that goes away leaves it to the view's heading.

export function keepFocus() {
  let held = null;
  addEventListener("focusin", ({ target }) => (held = target));
  new MutationObserver(() => {
    if (!held || held.isConnected || document.activeElement !== document.body) return;
    held = null;
    document.querySelector("main h1")?.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true });
}
