// What the daemon tells the page about its marketplace, in the page's `meta` elements.

export function siteSetting(name) {
  return document.querySelector(`meta[name="${name}"]`).content;
}
