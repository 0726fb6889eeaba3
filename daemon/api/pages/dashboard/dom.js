// What the views are built of. Whatever is given as text goes in as text, never as markup.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

export function link(text, ...steps) {
  return element("a", { href: placeOf(...steps) }, text);
}

// The address of a place within the page.
export function placeOf(...steps) {
  return `#/${steps.map(encodeURIComponent).join("/")}`;
}

export function badge(word, kind) {
  return element("span", { class: `badge ${kind}` }, word);
}

export function problem(text) {
  return element("p", { class: "problem", role: "alert" }, text);
}

export function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

// A button that does one thing at a time, and shows why it could not.
export function action(text, work, attributes = {}) {
  const button = element("button", { type: "button", ...attributes }, text);
  button.addEventListener("click", () => busily(button, work));
  return button;
}

// Run `work` while `button` takes no click. A failure is told beside it.
export async function busily(button, work) {
  if (button.ariaDisabled === "true") return;
  const place = button.closest(".actions") ?? button;
  if (place.nextElementSibling?.matches(".problem")) place.nextElementSibling.remove();
  button.ariaDisabled = "true"; // unlike `disabled`, this keeps the focus where it is
  try {
    await work(button);
  } catch (fault) {
    if (place.isConnected) place.after(problem(fault.message));
  } finally {
    button.ariaDisabled = null;
  }
}

// A heading with a button beside it that copies what is below.
export function titled(level, title, text) {
  return element("div", { class: "titled" }, element(level, {}, title), copyButton(title, text));
}

// Text of any length as it is; a long one can be scrolled, also by keys.
export function block(name, text) {
  return element("pre", { tabindex: "0", role: "group", "aria-label": name }, text);
}

export function copyButton(name, text) {
  const copy = async (button) => {
    await toClipboard(await text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  return action("Copy", copy, { class: "quiet", "aria-label": `Copy: ${name}` });
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not allowed, or not there: as on a page that came over plain HTTP from another machine.
    if (!copySelected(text)) {
      throw new Error("The browser does not let this page copy: select the text instead.");
    }
  }
}

function copySelected(text) {
  const held = element("textarea", { class: "away", readonly: true });
  held.value = text;
  const before = document.activeElement;
  document.body.append(held);
  held.select();
  const copied = document.execCommand("copy");
  held.remove();
  before.focus();
  return copied;
}

// Ask before something that cannot be undone. True when it is wanted.
export function confirmed(question, consequence, yes) {
  return new Promise((settle) => {
    const dialog = element(
      "dialog",
      { "aria-labelledby": "question", "aria-describedby": "consequence" },
      element(
        "form",
        { method: "dialog" },
        element("h2", { id: "question" }, question),
        element("p", { id: "consequence" }, consequence),
        element(
          "div",
          { class: "actions" },
          element("button", { value: "yes", class: "danger" }, yes),
          element("button", { value: "", class: "quiet", autofocus: true }, "Cancel"),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      settle(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Make the children of `parent` those of `items`, keeping the nodes of items that are as they were:
// what is open, selected, focused or being clicked in them stays so. `make(item, old)` may give the
// old node back.
export function reconcile(parent, items, keyOf, make) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const nodes = items.map((item) => {
    const [key, state] = [String(keyOf(item)), JSON.stringify(item)];
    const old = known.get(key);
    if (old?.madeOf === state) return old;
    const made = make(item, old);
    made.dataset.key = key;
    made.madeOf = state;
    return made;
  });
  // Nodes that are put in again are new to the browser: it forgets what was pressed or selected.
  if (nodes.length === parent.children.length && nodes.every((node, at) => node === parent.children[at])) return;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const row = focused && [...parent.children].find((node) => node.contains(focused));
  parent.replaceChildren(...nodes);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
  else if (row) {
    const heir = nodes.find((node) => node.dataset.key === row.dataset.key);
    heir?.querySelector("a, button, summary")?.focus({ preventScroll: true });
  }
}
