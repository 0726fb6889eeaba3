// The owner's password, and the second factor where it is on.

import { html, useRef, useState, useEffect } from "../../lib/ui.js";
import { Failure, answerOf, ended, send, session } from "../../lib/api.js";
import { duration, t } from "../../lib/i18n.js";
import { Submit, useAction } from "../../components/action.js";
import { Field } from "../../components/field.js";
import { Faint, Problem, Title } from "../../components/text.js";

export function Login() {
  const [tempToken, setTempToken] = useState(null);
  const [reason, setReason] = useState(ended.value);
  if (tempToken === null) return html`<${Password} reason=${reason} onCodeAsked=${setTempToken} />`;
  const again = () => {
    setReason(t("login.beginAgain"));
    setTempToken(null);
  };
  return html`<${Code} tempToken=${tempToken} onDead=${again} />`;
}

function Password({ reason, onCodeAsked }) {
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  const action = useAction(async () => {
    const answer = await logIn("login", { password: input.current.value }, t("login.wrongPassword"));
    if (answer.mfaRequired) onCodeAsked(answer.tempToken);
    else enter();
  });
  return html`
    <form class="login" method="post" onSubmit=${action.submit}>
      <${Title} text=${t("login.title")} />
      ${reason && html`<${Problem} text=${reason} />`}
      <input class="away" tabindex="-1" aria-hidden="true" autocomplete="username" value="owner" readonly />
      <${Field} label=${t("login.password")}>
        ${(attributes) => html`<input ...${attributes} ref=${input} type="password" autocomplete="current-password" required />`}
      <//>
      <div class="actions"><${Submit} action=${action}>${t("login.continue")}<//></div>
      <${Faint}>${t("login.forgotten")}<//>
    </form>
  `;
}

function Code({ tempToken, onDead }) {
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  const action = useAction(async () => {
    try {
      await logIn("verify-mfa", { tempToken, code: input.current.value }, t("login.wrongCode"));
    } catch (fault) {
      if (fault.status !== 403) throw fault;
      onDead(); // too many wrong codes, or five minutes are over
      return;
    }
    enter();
  });
  return html`
    <form class="login" method="post" onSubmit=${action.submit}>
      <${Title} text=${t("login.second")} />
      <${Field} label=${t("login.code")} hint=${t("login.codeHint")}>
        ${(attributes) => html`<input ...${attributes} ref=${input} inputmode="numeric" autocomplete="one-time-code" maxlength="16" required />`}
      <//>
      <div class="actions"><${Submit} action=${action}>${t("login.continue")}<//></div>
    </form>
  `;
}

function enter() {
  ended.value = "";
  session.value = "in";
}

// With "session": "cookie" the answer holds no token: it is in a cookie that no script can read.
async function logIn(step, body, wrong) {
  try {
    return await answerOf(await send(`api/auth/${step}`, { body: { ...body, session: "cookie" } }));
  } catch (fault) {
    if (fault.status === 401) throw new Failure(401, wrong);
    if (fault.status === 429) throw new Failure(429, t("login.wait", { time: duration(fault.retryAfter ?? 1) }));
    throw fault;
  }
}
