// Crews: the list, and one crew with its tabs.

import { html } from "../../lib/ui.js";
import { ask } from "../../lib/api.js";
import { t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { placeOf, route } from "../../lib/router.js";
import { Problem, Title, Waiting } from "../../components/text.js";
import { Crew } from "./crew.js";
import { Execution } from "./execution.js";
import { Executions } from "./executions.js";
import { List } from "./list.js";
import { Marks } from "./marks.js";
import { Run } from "./run.js";
import { Status } from "./status.js";

const EVERY = 5; // seconds
const TABS = { run: Run, executions: Executions, status: Status };

export default function Crews() {
  const [, name, tab = "run", id] = route.value.steps;
  const { data, fault, reload } = usePolled((abort) => ask("api/crews", { signal: abort }), EVERY);
  if (!data) return html`<${Title} text=${name ?? t("crews.title")} /><${Waiting} fault=${fault} reload=${reload} />`;
  if (name === undefined) return html`<${List} crews=${data.crews} />`;
  const entry = data.crews.find((each) => each.name === name);
  if (!entry || !Object.hasOwn(TABS, tab)) return html`<${Title} text=${t("crews.unknown")} /><p><a href=${placeOf("crews")}>${t("crews.title")}</a></p>`;
  const crew = new Crew(entry);
  if (id) return html`<${Execution} key=${id} crew=${crew} id=${id} />`;
  const Shown = TABS[tab];
  return html`
    <p class="trail"><a href=${placeOf("crews")}>${t("crews.title")}</a> /</p>
    <${Title} text=${name}><${Marks} entry=${entry} /><//>
    <nav class="tabs" aria-label=${name}>
      ${Object.keys(TABS).map((each) => html`<a key=${each} href=${placeOf("crews", name, each)} aria-current=${each === tab ? "page" : undefined}>${t(`crews.${each}`)}</a>`)}
    </nav>
    <${Problems} entry=${entry} />
    <${Shown} key=${`${name} ${tab}`} crew=${crew} />
  `;
}

function Problems({ entry }) {
  if (!entry.problems.length) return null;
  return html`
    <${Problem} text=${t("crews.cannotRun")}>
      <ul lang="en">${entry.problems.map((text) => html`<li key=${text}>${text}</li>`)}</ul>
    <//>
  `;
}
