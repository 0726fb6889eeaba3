// Small pieces of text: headings, badges, problems, moments.

import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { session } from "../lib/api.js";
import { ago, moment, duration, t } from "../lib/i18n.js";

const NAME = "smartlinkd";

// A view's heading. It also is the tab's title, and has the focus when the view is shown, so that a
// screen reader begins there.
export function Title({ text, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${text} · ${NAME}`;
  }, [text, session.value]);
  useEffect(() => {
    scrollTo(0, 0);
    if (!document.activeElement?.closest("main, dialog")) heading.current.focus({ preventScroll: true });
  }, []);
  return html`<h1 ref=${heading} tabindex="-1">${text}${children && html` <span class="beside">${children}</span>`}</h1>`;
}

export function Badge({ kind, children }) {
  return html`<span class="badge ${kind}">${children}</span>`;
}

export function Problem({ text, children }) {
  return html`<div class="problem" role="alert"><p>${text}</p>${children}</div>`;
}

export function Faint({ children }) {
  return html`<p class="faint">${children}</p>`;
}

export function Section({ title, beside, children, kind = "" }) {
  return html`
    <section class=${kind}>
      <div class="titled"><h2>${title}</h2>${beside}</div>
      ${children}
    </section>
  `;
}

// A moment as "5 minutes ago", with the date and time as its tooltip.
export function Ago({ at }) {
  useTick(30);
  if (!at) return html`<span class="faint">–</span>`;
  return html`<time datetime=${at} title=${moment(at)}>${ago(at)}</time>`;
}

export function Moment({ at }) {
  if (!at) return html`<span class="faint">–</span>`;
  return html`<time datetime=${at} title=${at}>${moment(at)}</time>`;
}

// How long something took, or has taken so far.
export function Took({ since, until }) {
  useTick(until ? 0 : 1);
  if (!since) return html`<span class="faint">–</span>`;
  return html`<span>${duration((new Date(until ?? Date.now()) - new Date(since)) / 1000)}</span>`;
}

// Render again every `seconds`; 0: never.
function useTick(seconds) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!seconds) return undefined;
    const timer = setInterval(() => tick((before) => before + 1), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}

// Text of any length as it is. A long one can be scrolled, also by keys.
export function Block({ name, children }) {
  return html`<pre tabindex="0" role="group" aria-label=${name}>${children}</pre>`;
}

// Terms and what is known of them: rows of [term, content], without those whose content is null.
export function Facts({ rows }) {
  const known = rows.filter(([, content]) => content !== null && content !== undefined);
  return html`
    <dl>
      ${known.map(([term, content, kind = ""]) => html`<div class=${kind} key=${term}><dt>${term}</dt><dd>${content}</dd></div>`)}
    </dl>
  `;
}

// What is shown until the first answer, or in its place.
export function Waiting({ fault, reload }) {
  if (!fault) return html`<p class="faint" role="status">${t("loading")}</p>`;
  return html`
    <${Problem} text=${fault.message}>
      <button type="button" class="quiet" onClick=${reload}>${t("tryAgain")}</button>
    <//>
  `;
}
