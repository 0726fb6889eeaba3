// The owner's password, and the second factor where it is on.

import { busily, element, problem } from "./dom.js";
import { logIn, signIn } from "./session.js";

export function loginView(main, reason) {
  document.title = "Log in · smartlinkd";
  askForPassword(main, reason);
}

function askForPassword(main, reason = "") {
  const password = element("input", {
    id: "password",
    type: "password",
    autocomplete: "current-password",
    required: true,
  });
  const form = step(
    "Log in",
    reason,
    // Password managers file a password under a name.
    element("input", { id: "username", autocomplete: "username", value: "owner", hidden: true }),
    element("label", { for: "password" }, "Password"),
    password,
  );
  form.addEventListener("submit", (event) =>
    submitted(event, async () => {
      const answer = await logIn("api/auth/login", { password: password.value });
      if (answer.mfaRequired) askForCode(main, answer.tempToken);
      else enter(answer.token);
    }),
  );
  main.replaceChildren(form);
  password.focus();
}

function askForCode(main, tempToken) {
  const code = element("input", {
    id: "code",
    inputmode: "numeric",
    autocomplete: "one-time-code",
    required: true,
  });
  const form = step(
    "Second factor",
    "",
    element("label", { for: "code" }, "The 6 digits that your authenticator app shows"),
    code,
  );
  form.addEventListener("submit", (event) =>
    submitted(event, async () => {
      const body = { tempToken, code: code.value };
      try {
        enter((await logIn("api/auth/verify-mfa", body)).token);
      } catch (fault) {
        if (fault.status !== 403) throw fault;
        askForPassword(main, "There were too many wrong codes, or it took too long: begin again.");
      }
    }),
  );
  main.replaceChildren(form);
  code.focus();
}

function step(title, reason, ...fields) {
  return element(
    "form",
    { class: "login", method: "post" },
    element("h1", {}, title),
    reason ? problem(reason) : null,
    ...fields,
    element("div", { class: "actions" }, element("button", {}, "Continue")),
  );
}

function submitted(event, work) {
  event.preventDefault();
  busily(event.target.querySelector("button"), work);
}

function enter(token) {
  signIn(token);
  dispatchEvent(new Event("signedin"));
}
