// Convert: text in, affiliate links out.

import { html, useEffect, useRef } from "../../lib/ui.js";
import { t } from "../../lib/i18n.js";
import { placeOf } from "../../lib/router.js";
import { Action, Submit, useAction } from "../../components/action.js";
import { confirm } from "../../components/confirm.js";
import { Title } from "../../components/text.js";
import { account } from "../account/state.js";
import { begin, draft, isRunning, job, left } from "./job.js";
import { Progress } from "./progress.js";
import { Results } from "./results.js";
import { SubIds, hasFault, remember, subIds } from "./sub_ids.js";

export function Convert() {
  return html`
    <${Title} text=${t("convert.title")} />
    <${AccountHint} />
    <${Box} />
    <${Progress} />
    <${Results} />
  `;
}

// Why converting will fail, before it does.
function AccountHint() {
  const state = account.value;
  if (!state?.needsCare) return null;
  return html`
    <p class="hint">
      ${t(`account.${state.kind}.short`)} <a href=${placeOf("account")}>${t("account.fix")}</a>
    </p>
  `;
}

function Box() {
  const box = useRef(null);
  useEffect(() => {
    if (!job.value && matchMedia("(pointer: fine)").matches) box.current.focus();
  }, []);
  const action = useAction(async () => {
    if (!draft.value.trim()) throw new Error(t("convert.empty"));
    if (hasFault.value) throw new Error(t("convert.subIdFault"));
    if (job.value && left.value.length && !(await replaceUnfinished())) return;
    const given = subIds.value.map((each) => each.trim());
    if (!(await begin(draft.value, given))) throw new Error(t("convert.noLinks"));
    remember(given);
  });
  const keyed = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) action.submit(event);
  };
  return html`
    <form class="box" onSubmit=${action.submit}>
      <label for="text" class="away">${t("convert.label")}</label>
      <textarea id="text" ref=${box} rows="6" spellcheck="false" placeholder=${t("convert.placeholder")}
        value=${draft.value} onInput=${(event) => (draft.value = event.target.value)} onKeyDown=${keyed}></textarea>
      <${SubIds} />
      <div class="actions">
        <${Submit} action=${action}>${t(isRunning.value ? "convert.instead" : "convert.go")}<//>
        ${draft.value && html`<${Action} kind="quiet" onAct=${() => empty(box.current)}>${t("convert.emptyBox")}<//>`}
      </div>
    </form>
  `;
}

function empty(box) {
  draft.value = "";
  box.focus();
}

function replaceUnfinished() {
  return confirm({
    title: t("convert.replace.title"),
    text: t("convert.replace.text", { count: left.value.length }),
    yes: t("convert.replace.yes"),
  });
}
