// What goes wrong with a page once it is there. The server says which by the body's data-behaviour;
// everything else about the page stays as it is.
"use strict";
(() => {
  const { behaviour, login, check } = document.body.dataset;
  const spin = () => { for (;;) { /* an endless loop is the point */ } };
  const insteadOfSubmit = (show) => document.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    show();
  }, true);
  const played = {
    check_in_frame: () => insteadOfSubmit(() => {
      const dialog = document.createElement("div");
      dialog.setAttribute("role", "dialog");
      dialog.innerHTML = '<button class="close" type="button">Đóng</button><iframe></iframe>';
      dialog.querySelector("iframe").src = check;
      dialog.querySelector("button").addEventListener("click", () => dialog.remove());
      document.body.append(dialog);
    }),
    check_afterwards: () => new MutationObserver((_, observer) => {
      if (!document.querySelector(".ant-modal-root")) return;
      observer.disconnect();
      setTimeout(() => location.assign(check), 400);
    }).observe(document.body, { childList: true }),
    check_in_window: () => insteadOfSubmit(() => open(check)),
    alert: () => setTimeout(() => alert("Sandbox"), 0),
    hang: () => setTimeout(spin, 0),
    hang_on_submit: () => document.addEventListener("submit", spin, true),
    login_script: () => setTimeout(() => location.replace(login), 50),
    login_in_place: () => setTimeout(() => {
      document.querySelector("main").innerHTML =
        '<form class="card login"><h1>Đăng nhập</h1><input class="ant-input" name="loginKey">' +
        '<input class="ant-input" type="password" name="password"></form>';
    }, 50),
  };
  if (played[behaviour]) played[behaviour]();
})();

// What the page does when one of its own calls says that nobody, or not a person, is signed in:
// it leaves, a moment after the answer has come.
window.leaveIfRefused = (status, answer) => {
  const { login, check } = document.body.dataset;
  const loggedIn = answer && (answer.is_login ?? answer["2"]);
  const error = answer && (answer.error ?? answer["5"]);
  const lost = status === 401 || loggedIn === false;
  if (lost || error === 90309999) setTimeout(() => location.assign(lost ? login : check), 400);
  return lost || error === 90309999;
};
