// Sub-ids, and the sets of them that were used before.

import { computed, effect, html, signal, useState } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { read, write } from "../../lib/storage.js";
import { TextField } from "../../components/field.js";

const PLACES = 5;
const MOST_PRESETS = 8;
const GOOD = /^[A-Za-z0-9]{0,50}$/;

export const subIds = signal(read(localStorage, "subIds", Array(PLACES).fill("")));
effect(() => void write(localStorage, "subIds", subIds.value));
const presets = signal(read(localStorage, "presets", []));
effect(() => void write(localStorage, "presets", presets.value));

const isGood = (value) => GOOD.test(value.trim());
export const hasFault = computed(() => !subIds.value.every(isGood));

// Offer these as a preset from now on.
export function remember(given) {
  if (!given.some(Boolean)) return;
  const others = presets.value.filter((each) => nameOf(each) !== nameOf(given));
  presets.value = [given, ...others].slice(0, MOST_PRESETS);
}

function forget(preset) {
  presets.value = presets.value.filter((each) => each !== preset);
}

function nameOf(given) {
  return given.map((each) => each || "-").join(" · ").replace(/( · -)+$/, "");
}

export function SubIds() {
  const [isOpen, setOpen] = useState(false);
  const used = subIds.value.some(Boolean) ? nameOf(subIds.value) : "";
  const change = (place, value) => {
    subIds.value = subIds.value.map((each, at) => (at === place ? value : each));
  };
  return html`
    <details class="sub-ids" open=${isOpen || hasFault.value} onToggle=${(event) => setOpen(event.target.open)}>
      <summary>${t("subIds.title")} ${used && html`<span class="faint">${used}</span>`}</summary>
      <p class="faint">${t("subIds.hint")}</p>
      ${presets.value.length > 0 && html`<${Presets} />`}
      <div class="row">
        ${subIds.value.map(
          (value, place) => html`
            <${TextField} key=${place} label=${t("subIds.place", { place: place + 1 })} value=${value} maxlength="60"
              autocomplete="off" autocapitalize="off" spellcheck="false"
              fault=${isGood(value) ? "" : t("subIds.fault")} onValue=${(text) => change(place, text)} />
          `,
        )}
      </div>
    </details>
  `;
}

function Presets() {
  return html`
    <ul class="presets" aria-label=${t("subIds.presets")}>
      ${presets.value.map(
        (preset) => html`
          <li key=${nameOf(preset)}>
            <button type="button" class="quiet" onClick=${() => (subIds.value = preset)}>${nameOf(preset)}</button>
            <button type="button" class="quiet" aria-label=${t("subIds.forget", { name: nameOf(preset) })} onClick=${() => forget(preset)}>×</button>
          </li>
        `,
      )}
      <li><button type="button" class="quiet" onClick=${() => (subIds.value = Array(PLACES).fill(""))}>${t("subIds.none")}</button></li>
    </ul>
  `;
}
