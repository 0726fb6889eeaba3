// The list of crews, each with its last run.

import { html } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { placeOf } from "../../lib/router.js";
import { Ago, Faint, Title } from "../../components/text.js";
import { Crew } from "./crew.js";
import { StateBadge } from "./executions.js";
import { Marks } from "./marks.js";

const EVERY = 5; // seconds

export function List({ crews }) {
  return html`
    <${Title} text=${t("crews.title")} />
    ${!crews.length && html`<${Faint}>${t("crews.none")}<//>`}
    <ul class="plain rows">
      ${crews.map((entry, place) => html`<li key=${entry.name ?? place}><${Line} entry=${entry} /></li>`)}
    </ul>
  `;
}

function Line({ entry }) {
  const { name, running, queued, problems } = entry;
  const work = [running && t("crews.running", { number: running }), queued && t("crews.queued", { number: queued })].filter(Boolean);
  return html`
    <div>
      <h2>${name ? html`<a href=${placeOf("crews", name)}>${name}</a>` : t("crews.noName")} <${Marks} entry=${entry} /></h2>
      ${problems.length > 0 && html`<ul class="problems" lang="en">${problems.map((text) => html`<li key=${text}>${text}</li>`)}</ul>`}
      ${work.length > 0 && html`<p class="faint">${work.join(" · ")}</p>`}
      ${name && html`<${LastRun} entry=${entry} />`}
    </div>
    ${name && !problems.length && html`<a class="button" href=${placeOf("crews", name, "run")} aria-label=${t("crews.runOne", { name })}>${t("crews.run")}</a>`}
  `;
}

function LastRun({ entry }) {
  const last = (abort) => new Crew(entry).executions({ limit: 1, signal: abort });
  const { data } = usePolled(last, EVERY, [entry.name]);
  const run = data?.executions[0];
  if (!run) return data && !entry.problems.length && html`<p class="faint">${t("crews.neverRun")}</p>`;
  return html`
    <p class="faint">
      ${t("crews.lastRun")} <a href=${placeOf("crews", entry.name, "executions", run.kickoff_id)}><${Ago} at=${run.created_at} /></a> <${StateBadge} run=${run} />
    </p>
  `;
}
