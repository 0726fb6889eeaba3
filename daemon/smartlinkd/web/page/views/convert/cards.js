// One converted link with its product, and one that could not be converted.

import { html, useState } from "../../lib/ui.js";
import { has, money, number, t } from "../../lib/i18n.js";
import { Action, Copy } from "../../components/action.js";
import { Icon } from "../../components/icon.js";
import { Badge } from "../../components/text.js";
import { retry } from "./job.js";

// `note` stands before the link that was converted, `beside` at the buttons.
export function LinkCard({ link, entry, note, beside }) {
  const { shortLink, product } = entry;
  return html`
    <article class="card">
      <${Picture} address=${product?.image} />
      <div class="about">
        <h3><a href=${product?.productLink ?? shortLink} target="_blank" rel="noreferrer">${product?.name ?? t("card.noName")}</a></h3>
        ${product?.shopName && html`<p class="faint">${product.shopName}</p>`}
        <${Money} product=${product} />
        <${Marks} product=${product} />
        ${!product && html`<p class="faint">${t("card.noProduct")}</p>`}
      </div>
      <div class="take">
        <a class="short" href=${shortLink} target="_blank" rel="noreferrer">${shortLink.replace(/^https?:\/\//, "")}</a>
        <${Copy} kind="" text=${shortLink} label=${t("card.copy", { link: shortLink })} />
        ${beside}
      </div>
      <p class="origin faint">${note && html`<span>${note} · </span>`}${link}</p>
    </article>
  `;
}

// The marketplace's picture host may be out of reach: then a sign stands in for it.
export function Picture({ address }) {
  const [isMissing, setMissing] = useState(!address);
  if (isMissing) return html`<div class="picture none"><${Icon} name="picture" /></div>`;
  return html`
    <img class="picture" src=${address} alt="" width="96" height="96" loading="lazy" decoding="async"
      referrerpolicy="no-referrer" onError=${() => setMissing(true)} />
  `;
}

function Money({ product }) {
  if (!product || product.price === null) return null;
  const { price, commission, commissionRate, cap } = product;
  return html`
    <p class="money">
      <span class="price">${money(price)}</span>
      ${commission !== null && html`<span class="commission">${t("card.commission", { money: money(commission) })}${commissionRate && ` (${commissionRate})`}</span>`}
      ${cap !== null && html`<span class="faint">${t("card.cap", { money: money(cap) })}</span>`}
    </p>
  `;
}

function Marks({ product }) {
  if (!product) return null;
  const { isXtra, rating, sales } = product;
  return html`
    <p class="marks">
      ${isXtra && html`<${Badge} kind="success">${t("card.xtra")}<//>`}
      ${rating !== null && html`<span>★ ${rating}</span>`}
      ${sales !== null && html`<span>${t("card.sold", { number: number(sales) })}</span>`}
    </p>
  `;
}

export function FailureCard({ link, code }) {
  const key = has(`failCode.${code}`) ? `failCode.${code}` : "failCode.-1";
  return html`
    <article class="card failed">
      <div class="picture none"><${Icon} name="convert" /></div>
      <div class="about">
        <h3>${t(key)}</h3>
        <p>${t(`${key}.todo`)}</p>
      </div>
      <div class="take"><${Action} kind="quiet" label=${t("card.retry", { link })} onAct=${() => retry([link])}>${t("tryAgain")}<//></div>
      <p class="origin faint">${link}</p>
    </article>
  `;
}
