// The portal's custom link form, read ("look") and filled in ("submit") as its owner would.
//
// Runs in the page. Nothing here depends on the page's framework but for one thing: values are set
// by the element's native setter followed by an input event, because a framework that keeps its own
// copy of a field's value takes no notice of a plain assignment.
//
// look   → {url, status, password, form: "none" | "disabled" | "ready", json}
// submit → {pressed: true} or {pressed: false, why, hint}
async (task, links, subIds, waitMs) => {
  const DIALOGS = '[role="dialog"], .ant-modal-root, .ant-modal-wrap';
  const SETTLE_MS = 1000;  // for an overlay to go away; the form works below it too
  const CHECK_MS = 50;  // a value can change without a mutation to observe
  const HINT_LENGTH = 200;
  const JSON_LENGTH = 4096;  // what the portal's risk control says has some 200

  // What its owner would not see is not there; and an overlay with the last results has text areas
  // and buttons of its own.
  const all = (root, selector) =>
    [...root.querySelectorAll(selector)].filter(
      (element) => !element.closest(DIALOGS) && element.checkVisibility({ checkVisibilityCSS: true }));
  const squeezed = (text) => (text ?? "").toLowerCase().replace(/[\s_-]/g, "");

  // What a field is called: by its attributes, its labels, or the nearest text before it.
  const names = (input) => [
    input.id, input.name, input.placeholder, input.ariaLabel,
    ...[...(input.labels ?? [])].map((label) => label.textContent),
    document.evaluate("preceding::text()[normalize-space()][1]", input, null,
      XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue?.textContent,
  ].map(squeezed);

  const subFieldsOf = (box, area) => {
    const inputs = all(box, "input")
      .filter((input) => input.form === area.form)
      .map((input) => ({ input, called: names(input) }));
    return [1, 2, 3, 4, 5].map((n) => {
      const subId = new RegExp(`subid${n}(?![0-9])`);
      return inputs.find(({ called }) => called.some((name) => subId.test(name)))?.input;
    });
  };

  // The one to press, surest sign first. A <button> submits unless it says otherwise, so its
  // property is looked at and not its attribute; one of another form is not this form's.
  const buttonOf = (box, area) => {
    const found = all(box, 'button, input[type="submit"], [role="button"]').filter(
      (it) => it.type !== "reset" && (!it.form || it.form === area.form));
    return found.find((it) => it.getAttribute("type") === "submit")
      ?? found.find((it) => it.matches(".ant-btn-primary"))
      ?? found.find((it) => it.type === "submit")
      ?? found[0];
  };

  const boxOf = (area) => {
    if (area.form) return area.form;
    let box = area.parentElement;
    while (box !== document.body && !buttonOf(box, area)) box = box.parentElement;
    return box;
  };

  const find = () => {
    const forms = all(document, "textarea").map((area) => {
      const box = boxOf(area);
      return { area, box, button: buttonOf(box, area), subFields: subFieldsOf(box, area) };
    });
    return forms.find((it) => it.subFields[0]) ?? forms.find((it) => it.button) ?? forms[0] ?? null;
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
      // Of a document that is an answer in JSON, in the place of a page.
      json: !form && /json/.test(document.contentType)
        ? (document.querySelector("pre") ?? document.body)?.textContent.slice(0, JSON_LENGTH) ?? ""
        : "",
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

    const fill = () => {
      const fields = wrong(form);
      fields.forEach(([field, value]) => set(field, value));
      return fields.length === 0;
    };
    const filled = () => {
      form = find();
      return form?.button && fill() && !form.button.matches(':disabled, [aria-disabled="true"]');
    };
    fill();
    // A framework takes over what it was told after this task has ended, not within it.
    await new Promise((resolve) => setTimeout(resolve));
    if (!(await until(filled, waitMs))) return refused("its button stays disabled", form);
    form.button.click();
    return { pressed: true };
  };

  return task === "look" ? look() : submit();
}
