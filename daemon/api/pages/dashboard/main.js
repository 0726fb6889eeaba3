// Which view is shown: the address behind `#` says it. A view lives until its signal is aborted.

import { crewsView } from "./crews.js";
import { element, link, problem } from "./dom.js";
import { executionView } from "./execution.js";
import { executionsView } from "./executions.js";
import { loginView } from "./login.js";
import { runView } from "./run.js";
import { Failure, signedIn, signOut } from "./session.js";
import { statusView } from "./status.js";
import { notice } from "./waiting.js";

const main = document.getElementById("main");
const leave = document.getElementById("leave");
let left = new AbortController();

function viewAt(hash) {
  const [path, query] = hash.replace(/^#?\/?/, "").split("?");
  let steps;
  try {
    steps = path.split("/").map(decodeURIComponent);
  } catch {
    return nothing; // no address that could be decoded
  }
  const [first, name, ...rest] = steps;
  if (!first) return crewsView;
  if (first !== "crews" || !name) return nothing;
  switch (`${rest[0] ?? ""}/${rest.length}`) {
    case "/0":
      return (arrive, signal) => statusView(arrive, signal, name);
    case "run/1":
      return (arrive, signal) => runView(arrive, signal, name);
    case "executions/1":
      return (arrive, signal) => executionsView(arrive, signal, name, new URLSearchParams(query));
    case "executions/2":
      return (arrive, signal) => executionView(arrive, signal, name, rest[1]);
    default:
      return nothing;
  }
}

async function nothing(arrive) {
  arrive("Not found", element("h1", {}, "There is nothing here"), link("The crews"));
}

async function show() {
  left.abort();
  const here = (left = new AbortController());
  document.querySelector("dialog")?.close();
  notice("");
  leave.hidden = !signedIn();
  if (!signedIn()) return loginView(main, "");
  main.ariaBusy = "true";
  let arrived = false;
  const arrive = (title, ...nodes) => {
    if (here.signal.aborted) return;
    arrived = true;
    const held = document.activeElement?.id;
    main.replaceChildren(...nodes);
    main.ariaBusy = null;
    document.title = `${title} · smartlinkd`;
    scrollTo(0, 0);
    const heading = main.querySelector("h1");
    heading.tabIndex = -1;
    // A field that is there again keeps the focus; else a screen reader begins with the title.
    const again = held ? main.querySelector(`#${CSS.escape(held)}`) : null;
    (again ?? heading).focus();
  };
  try {
    await viewAt(location.hash)(arrive, here.signal);
  } catch (fault) {
    if (here.signal.aborted) return undefined;
    if (!(fault instanceof Failure)) reportError(fault);
    if (!arrived) arrive("Not available", element("h1", {}, "Not available"));
    main.querySelector("h1").after(problem(fault.message));
    here.abort();
    notice("");
  }
  return undefined;
}

function end(reason) {
  left.abort();
  signOut();
  notice("");
  leave.hidden = true;
  document.querySelector("dialog")?.close();
  main.ariaBusy = null;
  loginView(main, reason);
}

addEventListener("hashchange", show);
addEventListener("signedin", show);
addEventListener("signedout", () => end("The session has ended: log in again."));
leave.addEventListener("click", () => end(""));
show();
