// The portal's custom link form, read ("look") and filled in ("submit") as its owner would.
//
// Runs in the page. Nothing here depends on the page's framework but for one thing: values are set
// by the element's native setter followed by an input event, because a framework that keeps its own
// copy of a field's value takes no notice of a plain assignment.
//
// look   → {url, status, password, form: "none" | "disabled" | "ready"}
// submit → {pressed: true} or {pressed: false, why, hint}
async (task, links, subIds, waitMs) => {
  const DIALOGS = '[role="dialog"], .ant-modal-root, .ant-modal-wrap';
  const SETTLE_MS = 1000;  // for an overlay to go away; the form works below it too
  const CHECK_MS = 50;  // a value can change without a mutation to observe
  const HINT_LENGTH = 200;

  // An overlay with the last results has text areas and buttons of its own.
  const all = (root, selector) =>
    [...root.querySelectorAll(selector)].filter((element) => !element.closest(DIALOGS));
  const first = (root, selector) => all(root, selector)[0];
  const squeezed = (text) => (text ?? "").toLowerCase().replace(/[\s_-]/g, "");

  const subField = (box, n) =>
    first(box, `input[id$="sub_id${n}" i]`) ??
    all(box, "input").find((input) =>
      [input.placeholder, input.ariaLabel, ...[...(input.labels ?? [])].map((it) => it.textContent)]
        .some((text) => squeezed(text).startsWith(`subid${n}`)));

  const boxOf = (area) => {
    if (area.form) return area.form;
    let box = area.parentElement;
    while (box !== document.body && !first(box, "button")) box = box.parentElement;
    return box;
  };

  const find = () => {
    const areas = all(document, "textarea").map((area) => ({ area, box: boxOf(area) }));
    const size = ({ box }) => box.querySelectorAll("*").length;
    // The text area that has the sub-ids beside it, nearest: a stray one has the whole page.
    const [found = areas[0]] = areas
      .filter(({ box }) => subField(box, 1))
      .sort((one, other) => size(one) - size(other));
    if (!found) return null;
    const { area, box } = found;
    const button =
      first(box, 'button[type="submit"], input[type="submit"]') ??
      first(box, "button.ant-btn-primary") ??
      first(box, "button");
    return { area, box, button, subFields: [1, 2, 3, 4, 5].map((n) => subField(box, n)) };
  };

  const until = (check, ms) =>
    new Promise((resolve) => {
      const end = performance.now() + ms;
      const look = () => {
        const met = check();
        if (!met && performance.now() < end) return;
        observer.disconnect();
        clearInterval(timer);
        resolve(met);
      };
      const observer = new MutationObserver(look);
      observer.observe(document, { subtree: true, childList: true, attributes: true });
      const timer = setInterval(look, CHECK_MS);
      look();
    });

  const look = () => {
    const form = find();
    const usable = form?.button && !form.area.matches(":disabled, :read-only");
    return {
      url: location.href,
      status: performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0,
      password: document.querySelector('input[type="password"]') !== null,
      form: !form ? "none" : usable ? "ready" : "disabled",
    };
  };

  const set = (field, value) => {
    const prototype = Object.getPrototypeOf(field);
    Object.getOwnPropertyDescriptor(prototype, "value").set.call(field, value);
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new Event("change", { bubbles: true }));
  };

  // Fields that do not hold what they should, and what that is. All five sub-ids count: a value of
  // the last submit must not stay behind.
  const wrong = (form) =>
    [[form.area, links.join("\n")], ...form.subFields.map((field, i) => [field, subIds[i] ?? ""])]
      .filter(([field, value]) => field && field.value !== value);

  const refused = (why, form) => ({
    pressed: false,
    why,
    hint: [...(form?.box.querySelectorAll('[role="alert"], .ant-form-item-explain-error') ?? [])]
      .map((element) => element.textContent.trim()).join("; ").slice(0, HINT_LENGTH),
  });

  const submit = async () => {
    const open = () => [...document.querySelectorAll(DIALOGS)].filter((it) => it.checkVisibility());
    for (const dialog of open()) {
      dialog.querySelector('.ant-modal-close, [aria-label="Close"], .close')?.click();
    }
    await until(() => open().length === 0, SETTLE_MS);

    let form = find();
    if (!form) return refused("it has no text area for the links");
    if (!form.button) return refused("it has no button");
    if (form.area.matches(":disabled, :read-only")) return refused("disabled");
    const missing = subIds.findIndex((value, i) => value && !form.subFields[i]);
    if (missing >= 0) return refused(`it has no field for sub-id ${missing + 1}`);

    const filled = () => {
      form = find();
      if (!form?.button) return false;
      const fields = wrong(form);
      fields.forEach(([field, value]) => set(field, value));
      return fields.length === 0 && !form.button.matches(':disabled, [aria-disabled="true"]');
    };
    filled();
    // A framework takes over what it was told after this task has ended, not within it.
    await new Promise((resolve) => setTimeout(resolve));
    if (!(await until(filled, waitMs))) return refused("its button stays disabled", form);
    form.button.click();
    return { pressed: true };
  };

  return task === "look" ? look() : submit();
}
