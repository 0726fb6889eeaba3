// The last records of the daemon's log.

import { html, useState } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { clock, moment, t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { Select, TextField } from "../../components/field.js";
import { Faint, Section, Waiting } from "../../components/text.js";

const EVERY = 5; // seconds
const LEVELS = ["debug", "info", "warning", "error"];
const LIMIT = 500;

export function Log() {
  const [level, setLevel] = useState("info");
  const [q, setQ] = useState("");
  const query = new URLSearchParams({ level, limit: LIMIT, ...(q && { q }) });
  const { data, fault, reload } = usePolled((abort) => ask(`api/log?${query}`, { signal: abort }), EVERY, [level, q]);
  return html`
    <${Section} title=${t("log.title")}>
      <div class="row filters">
        <${Select} label=${t("log.level")} value=${level} onValue=${setLevel} options=${LEVELS.map((each) => [each, t(`log.level.${each}`)])} />
        <${TextField} label=${t("log.search")} type="search" value=${q} onValue=${setQ} maxlength="200" />
      </div>
      ${!data && html`<${Waiting} fault=${fault} reload=${reload} />`}
      ${data && !data.records.length && html`<${Faint}>${t("log.none")}<//>`}
      ${data && html`<ol class="log" tabindex="0" aria-label=${t("log.title")}>${data.records.map((record, at) => html`<${Line} key=${`${record.at} ${data.records.length - at}`} record=${record} />`)}</ol>`}
    <//>
  `;
}

function Line({ record }) {
  return html`
    <li class=${record.level}>
      <time datetime=${record.at} title=${moment(record.at)}>${clock(record.at)}</time>
      <span class="level">${record.level}</span>
      <span class="message">${record.actor && html`<span class="faint">${record.actor}: </span>`}${record.message}</span>
    </li>
  `;
}
