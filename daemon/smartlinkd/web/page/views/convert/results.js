// What came of the links: as cards, and to take away.

import { html } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { save, toCsv } from "../../lib/csv.js";
import { Action, Copy } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { FailureCard, LinkCard } from "./cards.js";
import { clear, done, entries, job, left, replacedText } from "./job.js";

const PRODUCT = [
  "name", "price", "shopName", "rating", "sales", "commission", "commissionRate",
  "sellerCommission", "platformCommission", "isXtra", "cap", "productLink",
];

export function Results() {
  if (!job.value || !done.value) return null;
  const { links } = job.value;
  const short = () => links.map((link) => entries.value[link]?.shortLink).filter(Boolean);
  return html`
    <section class="results" aria-label=${t("results.title")}>
      <h2 class="away">${t("results.title")}</h2>
      <div class="actions">
        <${Copy} kind="" text=${() => replacedText(job.value, entries.value)}>${t("results.copyText")}<//>
        <${Copy} text=${() => short().join("\n")}>${t("results.copyAll")}<//>
        <${Action} kind="quiet" onAct=${() => save("smartlinks.csv", csv(links))}>${t("results.csv")}<//>
        <${Action} kind="quiet" onAct=${clearAll}>${t("results.clear")}<//>
      </div>
      <ul class="cards">
        ${links
          .filter((link) => entries.value[link])
          .map((link) => html`<li key=${link}><${Card} link=${link} entry=${entries.value[link]} /></li>`)}
      </ul>
    </section>
  `;
}

function Card({ link, entry }) {
  return entry.error ? html`<${FailureCard} link=${link} code=${entry.failCode} />` : html`<${LinkCard} link=${link} entry=${entry} />`;
}

function csv(links) {
  const head = ["link", "shortLink", "longLink", "failCode", ...PRODUCT];
  const rows = links
    .filter((link) => entries.value[link])
    .map((link) => {
      const { shortLink, longLink, failCode, product } = entries.value[link];
      return [link, shortLink, longLink, failCode, ...PRODUCT.map((name) => product?.[name])];
    });
  return toCsv([head, ...rows]);
}

async function clearAll() {
  const question = { title: t("results.clear.title"), text: t("results.clear.text"), yes: t("results.clear") };
  if (!left.value.length || (await confirm(question))) clear();
}
