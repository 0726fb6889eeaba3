// History: what was converted, when, for whom, and what it may earn.

import { html, useEffect, useState } from "../../lib/ui.js";
import { addressOf, ask } from "../../lib/api.js";
import { money, moment, number, t } from "../../lib/i18n.js";
import { usePolled } from "../../lib/polling.js";
import { go, replace, route } from "../../lib/router.js";
import { Action } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { TextField } from "../../components/field.js";
import { Plot } from "../../components/plot.js";
import { Faint, Section, Title, Waiting } from "../../components/text.js";
import { LinkCard } from "../convert/cards.js";
import { draft } from "../convert/job.js";
import { FILTERS, PAGE, bounds, days, pathOf } from "./state.js";

export default function History() {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, route.value.query.get(name) ?? ""]));
  const key = JSON.stringify(filters);
  const [round, setRound] = useState(0);
  return html`
    <${Title} text=${t("history.title")} />
    <${Filters} filters=${filters} />
    <${Days} key=${`days ${key} ${round}`} filters=${bounds(filters)} />
    <${List} key=${`list ${key} ${round}`} filters=${bounds(filters)} isFiltered=${Object.values(filters).some(Boolean)} onDeleted=${() => setRound(round + 1)} />
  `;
}

function Filters({ filters }) {
  const [typed, setTyped] = useState(filters);
  const key = JSON.stringify(filters);
  useEffect(() => setTyped(filters), [key]);
  const change = (name) => (value) => setTyped({ ...typed, [name]: value });
  const apply = (event) => {
    event?.preventDefault();
    replace("history", typed);
  };
  const clear = () => replace("history");
  return html`
    <form class="row filters" role="search" onSubmit=${apply}>
      <${TextField} label=${t("history.search")} type="search" value=${typed.q} onValue=${change("q")} maxlength="200" />
      <${TextField} label=${t("history.subId")} value=${typed.subId} onValue=${change("subId")} maxlength="50" />
      <${TextField} label=${t("history.from")} type="date" value=${typed.from} onValue=${change("from")} />
      <${TextField} label=${t("history.to")} type="date" value=${typed.to} onValue=${change("to")} />
      <div class="actions">
        <button type="submit">${t("history.apply")}</button>
        ${Object.values(filters).some(Boolean) && html`<button type="button" class="quiet" onClick=${clear}>${t("history.all")}</button>`}
      </div>
    </form>
  `;
}

function Days({ filters }) {
  const { data } = usePolled((abort) => days(filters, abort), 0);
  if (!data || data.length < 2) return null;
  const times = data.map(({ at }) => at / 1000);
  const total = data.reduce((sum, { commission }) => sum + commission, 0);
  const links = data.reduce((sum, each) => sum + each.links, 0);
  return html`
    <${Section} title=${t("history.days")}>
      <p class="faint">${t("history.sum", { count: links, money: money(total) })}</p>
      <div class="plots">
        <${DaysPlot} title=${t("history.links")} times=${times} values=${data.map((each) => each.links)} />
        <${DaysPlot} title=${t("history.commission")} times=${times} values=${data.map((each) => each.commission)} format=${(value) => number(value, { notation: "compact" })} />
      </div>
    <//>
  `;
}

function DaysPlot({ title, times, values, format }) {
  return html`
    <figure>
      <figcaption>${title}</figcaption>
      <${Plot} name=${title} times=${times} format=${format} series=${[{ label: title, values, bars: true }]} />
    </figure>
  `;
}

function List({ filters, isFiltered, onDeleted }) {
  const [older, setOlder] = useState({ entries: [], cursor: undefined });
  const [gone, setGone] = useState([]);
  const { data, fault, reload } = usePolled((abort) => ask(pathOf(filters, { limit: PAGE }), { signal: abort }), 0);
  if (!data) return html`<${Waiting} fault=${fault} reload=${reload} />`;
  const entries = [...data.entries, ...older.entries].filter(({ id }) => !gone.includes(id));
  const cursor = older.cursor === undefined ? data.nextCursor : older.cursor;
  const more = async () => {
    const answer = await ask(pathOf(filters, { limit: PAGE, cursor }));
    setOlder({ entries: [...older.entries, ...answer.entries], cursor: answer.nextCursor });
  };
  const remove = async ({ id }) => {
    await ask(`api/history/${encodeURIComponent(id)}`, { method: "DELETE" });
    setGone((before) => [...before, id]);
  };
  if (!entries.length && !cursor) return html`<${Faint}>${t(isFiltered ? "history.nothing" : "history.none")}<//>`;
  return html`
    <div class="actions">
      <a class="button quiet" download referrerpolicy="same-origin" href=${addressOf(pathOf(filters).replace("history", "history.csv"))}>${t("results.csv")}</a>
      <${Action} kind="danger" onAct=${() => removeAll(filters, isFiltered, onDeleted)}>${t(isFiltered ? "history.deleteFound" : "history.deleteAll")}<//>
    </div>
    <h2 class="away">${t("results.title")}</h2>
    <ul class="cards">
      ${entries.map((entry) => html`<li key=${entry.id}><${Entry} entry=${entry} onDelete=${() => remove(entry)} /></li>`)}
    </ul>
    ${cursor && html`<div class="actions"><${Action} kind="quiet" onAct=${more}>${t("history.older")}<//></div>`}
  `;
}

function Entry({ entry, onDelete }) {
  const subIds = entry.subIds.filter(Boolean).join(" · ");
  const again = () => {
    draft.value = entry.link;
    go("convert");
  };
  const beside = html`
    <${Action} kind="quiet" onAct=${again}>${t("history.again")}<//>
    <${Action} kind="quiet" label=${t("history.delete", { link: entry.link })} onAct=${onDelete}>${t("delete")}<//>
  `;
  const note = [moment(entry.at), clientOf(entry.client), subIds].filter(Boolean).join(" · ");
  return html`<${LinkCard} link=${entry.link} entry=${entry} note=${note} beside=${beside} />`;
}

function clientOf(client) {
  if (client === "owner" || client === "local") return t(`history.client.${client}`);
  return client.startsWith("crew:") ? t("history.client.crew", { name: client.slice(5) }) : t("history.client.key", { name: client });
}

async function removeAll(filters, isFiltered, onDeleted) {
  const isWanted = await confirm({
    title: t(isFiltered ? "history.deleteFound.title" : "history.deleteAll.title"),
    text: t("history.delete.text"),
    yes: t("delete"),
  });
  if (!isWanted) return;
  await ask(pathOf(filters), { method: "DELETE" });
  onDeleted();
}
