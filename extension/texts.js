// Texts in the browser's language, from `_locales`.

/** Return a text by its key. */
export function text(key, ...words) {
  return chrome.i18n.getMessage(key, words);
}

/** Fill every element that has `data-text`. */
export function show(document) {
  document.documentElement.lang = chrome.i18n.getUILanguage();
  for (const element of document.querySelectorAll("[data-text]")) {
    element.textContent = text(element.dataset.text);
  }
}
