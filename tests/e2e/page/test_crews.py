"""The crews' views of the page."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
import trio

from tests.e2e.page.tab import EVIL, Tab

if TYPE_CHECKING:
    from tests.e2e.page.conftest import Daemon

pytestmark = pytest.mark.chromium

SMALL_PHONE = 360  # pixels


async def test_login_with_second_factor_leads_to_the_page(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews")
    await tab.type("Password", "wrong")
    await tab.press_enter()
    await tab.see("The password is wrong.")
    await tab.log_in(daemon.password, daemon.totp.at(time.time() + 30))
    shown = await tab.see("asking", "endless", "failing", "broken", "Log out")
    assert "/nowhere/at-all" in shown
    await tab.click("link", "broken")
    shown = await tab.see("This crew cannot run")
    assert shown.count("/nowhere/at-all") == 1
    await tab.click("button", "Log out")
    await tab.find("textbox", "Password")


async def test_queue_of_a_broken_crew_is_shown(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/asking/status", session=daemon.session)
    await tab.see("Healthy")
    await tab.evaluate(
        """(() => {
            const real = fetch;
            window.fetch = async (...asked) => {
                const answer = await real(...asked);
                if (!String(asked[0]).endsWith("api/crews")) return answer;
                const told = await answer.json();
                for (const crew of told.crews) if (crew.problems.length) crew.queued = 3;
                return new Response(JSON.stringify(told), answer);
            };
            location.hash = "#/crews";
        })()"""
    )
    await tab.see("/nowhere/at-all", "3 waiting")


async def test_a_token_is_shown_and_rotated(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/asking/status", session=daemon.session)
    await tab.see("Healthy", f"{daemon.url}/crews/asking", "User Bearer Token: ann")
    before = (await daemon.owner("/api/crews/token", {"crew": "asking", "user": "ann"}))["token"]
    assert before not in await tab.see("Tokens")
    await tab.click("button", "Reveal: User Bearer Token: ann")
    await tab.see(before)
    await tab.click("button", "Rotate “User Bearer Token: ann”?")
    await tab.click("button", "Rotate…")
    shown = await tab.see("slu_", but_not=before)
    after = "slu_" + shown.partition("slu_")[2].split()[0]
    assert await daemon.inputs("asking", before) == 401
    assert await daemon.inputs("asking", after) == 200
    assert tab.refused == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_token_is_copied_without_being_shown(
    daemon: Daemon, tab: Tab, allowed: bool
) -> None:
    await tab.open("crews/asking/status", session=daemon.session)
    await tab.see("Healthy")
    if allowed:  # other browsers allow the clipboard from the start
        granted = {"permissions": ["clipboardSanitizedWrite"]}
        await tab.session.call("Browser.grantPermissions", granted)
        await tab.evaluate("document.execCommand = () => false")  # and the page uses no other way
    await tab.click("button", "Copy: Bearer Token")
    await tab.see("Copied", but_not="slc_")
    await tab.go("crews/asking/run")
    token = (await daemon.owner("/api/crews/token", {"crew": "asking"}))["token"]
    assert await tab.paste("topic required") == token


async def test_crew_is_run_with_the_form_and_gets_feedback(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/asking/run", session=daemon.session)
    await tab.see(EVIL)  # the input's description
    await tab.click("button", "Run")
    await tab.see("Give a value.")
    await tab.type("topic required", EVIL)
    await tab.type("tone optional", "{no json")
    await tab.click("button", "Run")
    await tab.see("This is not JSON")
    await tab.type("tone optional", "1e400")
    await tab.click("button", "Run")
    await tab.see("Infinity")
    await tab.type("tone optional", '{"polite": false}')
    await tab.click("button", "Run")
    await tab.see("waiting for you", f"Good? {EVIL}", "human_input_requested")
    await tab.type("Feedback", EVIL)
    await tab.click("button", "Approve")
    await tab.see("completed", "Result", "crew_kickoff_completed")
    assert await tab.focused() == "H1"  # the focus is kept although the form is gone
    assert json.loads(await tab.text("group", "Result")) == {
        "inputs": {"topic": EVIL, "tone": {"polite": False}},
        "human": EVIL,
    }
    await tab.click("link", "Runs")
    await tab.see("completed", "How it stands")
    assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "taken" not in str(await tab.evaluate("document.title"))
    assert tab.refused == [(400, "/crews/asking/kickoff")]  # of the number beyond JSON


async def test_numbers_are_kept_as_they_were_written(daemon: Daemon, tab: Tab) -> None:
    given = '{"id": 9007199254740993, "half": 0.5, "__proto__": {"polite": true}}'
    await tab.open("crews/asking/run", session=daemon.session)
    await tab.type("topic required", "numbers")
    await tab.type("tone optional", "12345678901234567890")
    await tab.click("DisclosureTriangle", "Other inputs")
    await tab.type("A JSON object with any values besides", given)
    await tab.click("button", "Run")
    await tab.click("button", "Approve")
    output = json.loads(await tab.text("group", "Result"))
    assert output["inputs"] == {
        "topic": "numbers",
        "tone": 12345678901234567890,
        **json.loads(given),
    }
    await tab.click("DisclosureTriangle", "As JSON")
    assert json.loads(await tab.text("group", "As JSON")) == output
    assert tab.refused == []


async def test_run_pressed_again_after_a_failure_is_the_same_execution(
    daemon: Daemon, tab: Tab
) -> None:
    await tab.open("crews/asking/run", session=daemon.session)
    await tab.type("topic required", "once")
    await tab.evaluate(
        """(() => {
            const real = fetch;
            window.fetch = async (url, options) => {
                const answer = await real(url, options);
                if (!/kickoff/.test(url)) return answer;
                window.fetch = real;
                throw new TypeError("it broke off");
            };
        })()"""
    )
    await tab.click("button", "Run")
    await tab.see("The daemon cannot be reached.")
    token = await daemon.token_of("asking")
    assert len(await daemon.executions("asking", token)) == 1
    await tab.click("button", "Run")
    await tab.see("Good? once")
    assert len(await daemon.executions("asking", token)) == 1
    await tab.go("crews/asking/run")
    await tab.type("topic required", "once")
    await tab.click("button", "Run")
    await tab.see("Good? once")
    assert len(await daemon.executions("asking", token)) == 2


async def test_hidden_tab_holds_no_connection(daemon: Daemon, tab: Tab) -> None:
    """A browser has six connections for all of its tabs."""
    kickoff_id = await daemon.kick_off("asking", {"topic": "x"})
    await tab.open(f"crews/asking/executions/{kickoff_id}", session=daemon.session)
    await tab.see("human_input_requested")
    following = """performance.getEntriesByType("resource").filter(
        (each) => each.name.includes("/events/")).length"""  # requests that have ended
    assert await tab.evaluate(following) == 0
    await tab.be_hidden(True)
    await tab.until(f"{following} === 1")
    body = {
        "execution_id": kickoff_id,
        "task_id": "write",
        "human_feedback": "",
        "is_approve": True,
    }
    await daemon.act("asking", "/resume", body)
    await tab.be_hidden(False)
    await tab.see("completed", "human_feedback_received", "crew_kickoff_completed")
    assert tab.refused == []


async def test_view_is_shown_once_the_daemon_answers_again(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews", session=daemon.session)
    await tab.see("asking")
    await tab.evaluate(
        """(() => {
            const real = fetch;
            window.fetch = async () => {
                window.fetch = real;
                throw new TypeError("it is being restarted");
            };
            location.hash = "#/crews/asking/status";
        })()"""
    )
    await tab.see("The daemon cannot be reached. Trying again…")
    await tab.see("Healthy", but_not="Trying again")


async def test_shown_shell_commands_work_unchanged(daemon: Daemon, tab: Tab) -> None:
    await tab.open("crews/endless/status", session=daemon.session)
    await tab.see("Healthy")
    titles = (
        "The inputs that it takes",
        "Start a run",
        "How it stands, and its result",
    )
    commands = [f"CREW_TOKEN={await daemon.token_of('endless')}"]
    commands += [await tab.text("group", title) for title in titles]
    done = await trio.run_process(["sh", "-euc", "\n".join(commands)], capture_stdout=True)
    inputs, kickoff_id, status = done.stdout.decode().replace("}", "}\n").split("\n", 2)
    assert json.loads(inputs) == {"inputs": []}
    assert json.loads(status.replace("}\n", "}"))["kickoff_id"] == kickoff_id
    await tab.go("crews/failing/status")
    await tab.see("Healthy", "failing")
    start = await tab.text("group", "Start a run")
    assert """{"inputs":{"why":"…"}}""" in start  # without the optional input


async def test_unknown_view_says_that_nothing_is_here(daemon: Daemon, tab: Tab) -> None:
    await tab.open("%ff", session=daemon.session)
    await tab.see("There is nothing here")


async def test_execution_is_stopped_after_a_confirmation(daemon: Daemon, tab: Tab) -> None:
    kickoff_id = await daemon.kick_off("endless", {})
    await tab.open(f"crews/endless/executions/{kickoff_id}", session=daemon.session)
    await tab.see("running", "Now: Waiting")
    await tab.click("button", "Stop")
    await tab.see("Stop this run?")
    await tab.click_in_dialog("Stop")
    await tab.see("stopped", "Error", "crew_kickoff_failed")
    # The focus is kept although the button is gone: a keyboard user goes on from here.
    assert await tab.focused() == "H1"
    await tab.go("crews/endless/executions?state=RUNNING")
    await tab.see("There are none.")
    assert tab.refused == []


async def test_slow_click_survives_a_refresh_of_the_list(daemon: Daemon, tab: Tab) -> None:
    kickoff_id = await daemon.kick_off("endless", {})
    await tab.open("crews/endless/executions", session=daemon.session)
    await tab.see("running", "Waiting")
    looks = (
        "performance.getEntriesByType('resource').filter((e) => /executions/.test(e.name)).length"
    )
    before = await tab.evaluate(looks)
    async with tab.mouse_held("link", kickoff_id[:8]):
        await tab.until(f"{looks} > {before + 1}")
    await tab.see("Now: Waiting", "crew_kickoff_started")


async def test_older_runs_stay_shown_when_a_new_one_begins(daemon: Daemon, tab: Tab) -> None:
    runs = [await daemon.kick_off("endless", {}) for _ in range(21)]  # one more than a page
    await tab.open("crews/endless/executions", session=daemon.session)
    await tab.click("button", "Show older ones")
    await tab.see(*(each[:8] for each in runs), but_not="Show older ones")
    runs.append(await daemon.kick_off("endless", {}))
    await tab.see(*(each[:8] for each in runs))


async def test_an_error_comes_first_and_stays_text(daemon: Daemon, tab: Tab) -> None:
    kickoff_id = await daemon.kick_off("failing", {"why": EVIL})
    await tab.open("crews/failing/executions", session=daemon.session)
    await tab.see("failed", "no model answers")
    await tab.click("link", kickoff_id[:8])
    shown = await tab.see(f"no model answers {EVIL}", "crew_kickoff_failed")
    assert shown.index("no model answers") < shown.index("Created")
    assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "taken" not in str(await tab.evaluate("document.title"))
    assert tab.refused == []


async def test_nothing_is_wider_than_a_small_phone(daemon: Daemon, tab: Tab) -> None:
    size = {"width": SMALL_PHONE, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    await tab.session.call("Emulation.setDeviceMetricsOverride", size)
    kickoff_id = await daemon.kick_off("failing", {"why": EVIL})
    await tab.open("crews", session=daemon.session)
    places = {
        "crews": "broken",
        "crews/asking/status": "Healthy",
        "crews/asking/run": "optional",
        "crews/failing/executions": kickoff_id[:8],
        f"crews/failing/executions/{kickoff_id}": "crew_kickoff_failed",
    }
    for place, text in places.items():
        await tab.go(place)
        await tab.see(text)
        assert await tab.evaluate("document.documentElement.scrollWidth") <= SMALL_PHONE, place
    assert tab.refused == []
