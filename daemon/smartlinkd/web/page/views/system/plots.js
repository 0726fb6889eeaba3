// A day of measurements, one a minute.

import { html } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { bytes, number, t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { Plot } from "../../components/plot.js";
import { Faint, Section, Waiting } from "../../components/text.js";

const EVERY = 60; // seconds
const SERIES = {
  conversions: { format: number, bars: true },
  submit_seconds: { format: (value) => number(value, { maximumFractionDigits: 2 }), dots: true },
  memory_bytes: { format: bytes },
  restarts: { format: number, bars: true },
};

export function Plots() {
  return html`
    <${Section} title=${t("system.day")}>
      <div class="plots">
        ${Object.entries(SERIES).map(([name, how]) => html`<${Series} key=${name} name=${name} how=${how} />`)}
      </div>
    <//>
  `;
}

function Series({ name, how }) {
  const { data, fault, reload } = usePolled((abort) => ask(`api/series?name=${name}&hours=24`, { signal: abort }), EVERY);
  const title = t(`series.${name}`);
  const points = data?.points ?? [];
  return html`
    <figure>
      <figcaption>${title}</figcaption>
      ${points.length < 2
        ? (data ? html`<${Faint}>${t("series.none")}<//>` : html`<${Waiting} fault=${fault} reload=${reload} />`)
        : html`<${Plot} name=${title} times=${points.map(({ at }) => new Date(at) / 1000)} format=${how.format}
            series=${[{ label: title, values: points.map(({ value }) => value), bars: how.bars, dots: how.dots }]} />`}
    </figure>
  `;
}
