// The custom-link form. It behaves as a React form does where that matters to whoever drives it:
// the truth is the state kept here, which only an `input` event can change. React also remembers
// the last value written through an element's own `value` property and ignores an `input` event
// that brings no other, so a script has to write through the prototype's setter; `track` does that.
"use strict";
(() => {
  const SUB_ID = /^[a-zA-Z0-9]{0,50}$/;
  const MOST_CHARACTERS = 3000; // an attribute bounds typing, not what a script sets
  const MOUNT_MS = 60; // the real form, too, comes some time after the page
  const MESSAGES = {
    1: "Lỗi không xác định", 2: "Liên kết không hợp lệ", 3: "Sub_id1 không hợp lệ",
    4: "Sub_id2 không hợp lệ", 5: "Sub_id3 không hợp lệ", 6: "Sub_id4 không hợp lệ",
    7: "Sub_id5 không hợp lệ",
  };
  const QUERY = `query batchGetCustomLink($linkParams: [CustomLinkParam!], $sourceCaller: SourceCaller) {
  batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller) {
    shortLink
    longLink
    failCode
  }
}`;
  const { behaviour, rows } = document.body.dataset;
  const root = document.getElementById("root");
  const state = { text: "", subIds: ["", "", "", "", ""], busy: false };

  const copyOf = (id) => document.getElementById(id).content.cloneNode(true);
  const links = () => state.text.split("\n").map((line) => line.trim()).filter(Boolean);

  function fault() {
    if (behaviour === "frozen") return "Tài khoản của bạn đã bị khóa.";
    if (links().length > Number(rows)) return `Tối đa ${rows} liên kết.`;
    if (state.text.length > MOST_CHARACTERS) return `Tối đa ${MOST_CHARACTERS} ký tự.`;
    const wrong = state.subIds.findIndex((value) => !SUB_ID.test(value));
    return wrong < 0 ? "" : `Sub_id${wrong + 1} chỉ gồm chữ và số.`;
  }

  function track(element, write) {
    const own = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(element), "value");
    let known = "";
    Object.defineProperty(element, "value", {
      configurable: true,
      get() { return own.get.call(element); },
      set(value) { known = String(value); own.set.call(element, value); },
    });
    element.addEventListener("input", () => {
      const value = own.get.call(element);
      if (value === known) return;
      known = value;
      write(value);
      render();
    });
  }

  function render() {
    const form = root.querySelector("form");
    const area = form.querySelector("textarea");
    if (area.value !== state.text) area.value = state.text;
    state.subIds.forEach((value, n) => {
      const input = form.querySelector(`#customLink_sub_id${n + 1}`);
      if (input.value !== value) input.value = value;
    });
    const message = fault();
    form.querySelector(".error").textContent = message;
    form.querySelector("fieldset").disabled = behaviour === "frozen";
    const button = form.querySelector("button");
    button.disabled = state.busy || message !== "" || links().length === 0;
    button.classList.toggle("ant-btn-loading", state.busy);
  }

  function cookie(name) {
    const pair = document.cookie.split("; ").find((one) => one.startsWith(`${name}=`));
    return pair === undefined ? "" : pair.slice(name.length + 1);
  }

  async function submit() {
    const subIds = Object.fromEntries(state.subIds.map((value, n) => [`subId${n + 1}`, value]));
    const response = await fetch("/api/v3/gql?q=batchCustomLink", {
      method: "POST",
      headers: {
        "content-type": "application/json; charset=UTF-8",
        "csrf-token": cookie("csrftoken"),
        "affiliate-program-type": "1",
      },
      body: JSON.stringify({
        operationName: "batchGetCustomLink",
        query: QUERY,
        variables: {
          linkParams: links().map((link) => ({ originalLink: link, advancedLinkParams: subIds })),
          sourceCaller: "CUSTOM_LINK_CALLER",
        },
      }),
    });
    const answer = await response.json();
    if (window.leaveIfRefused(response.status, answer)) return;
    if (!response.ok || answer.errors) throw new Error(answer.errors?.[0].message ?? answer.msg);
    show(answer.data.batchCustomLink);
  }

  // The overlay covers the form, so a click by coordinates does not reach the button while it is
  // open. It goes when it is closed, when the form is typed in, and when the next results come.
  function show(results) {
    hide();
    const overlay = copyOf("results").firstElementChild;
    const list = overlay.querySelector("ol");
    for (const row of results) {
      const item = document.createElement("li");
      const good = row && !row.failCode && row.shortLink;
      item.className = good ? "" : "failed";
      item.textContent = good ? row.shortLink : MESSAGES[row?.failCode] ?? MESSAGES[1];
      list.append(item);
    }
    overlay.querySelector(".ant-modal-close").addEventListener("click", hide);
    overlay.querySelector(".ant-modal-mask").addEventListener("click", hide);
    document.body.append(overlay);
  }

  function hide() { document.querySelector(".ant-modal-root")?.remove(); }

  function mount() {
    if (behaviour === "without_form") {
      root.innerHTML = "<p>Trang đang được nâng cấp.</p>";
      return;
    }
    root.replaceChildren(copyOf("form"));
    const form = root.querySelector("form");
    track(form.querySelector("textarea"), (value) => { state.text = value; hide(); });
    state.subIds.forEach((_, n) => {
      track(form.querySelector(`#customLink_sub_id${n + 1}`), (value) => { state.subIds[n] = value; hide(); });
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (form.querySelector("button").disabled) return;
      state.busy = true;
      render();
      let failure = "";
      try {
        await submit();
      } catch (error) {
        failure = `Không lấy được link: ${error.message}`;
      }
      state.busy = false;
      render();
      if (failure) form.querySelector(".error").textContent = failure;
    });
    render();
  }

  setTimeout(mount, MOUNT_MS);
})();
