"""The examples, each run as its reader would run it, against a daemon with the sandbox."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tests.contract.keys import key_for
from tests.e2e.conftest import (
    PATIENCE,
    ROOT,
    Account,
    Daemon,
    Portal,
    crew_daemon,
    daemon,
    portal,
    running,
)

__all__ = ["crew_daemon", "daemon", "portal", "running"]

EXAMPLES = ROOT / "examples"
TOKEN = "4711:a-bot-token"
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


async def run(
    *command: str, daemon: Daemon, key_file: Path, stdin: str = ""
) -> tuple[int, str, str]:
    """Run an example's program. Return its exit code and what it printed."""
    done = await trio.run_process(
        command,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "daemon"),
            "SMARTLINKD_URL": daemon.url,
            "SMARTLINKD_KEY_FILE": str(key_file),
        },
        stdin=stdin.encode(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
async def key_file(daemon: Daemon, portal: Portal, tmp_path: Path) -> Path:
    """A file with a key that converts; the daemon has a cookie."""
    await daemon.sync(portal.account())
    file = tmp_path / "key"
    file.write_text(await key_for(daemon, "convert"))
    return file


@dataclass
class BotApi:
    """Stands for Telegram's Bot API: gives each update once, and keeps what is sent."""

    updates: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    news: trio.Event = field(default_factory=trio.Event)

    async def answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):  # the bot was ended
                await self._serve(stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        received = b""
        while chunk := await stream.receive_some():
            received += chunk
            head, end, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if end and length is not None and len(body) >= int(length[1]):
                received = b""
                await self._respond(stream, head.split()[1].decode(), json.loads(body))

    async def _respond(self, stream: trio.SocketStream, path: str, body: dict[str, Any]) -> None:
        assert path.startswith(f"/bot{TOKEN}/")
        result: object = True
        if path.endswith("getUpdates"):
            result = [each for each in self.updates if each["update_id"] >= body["offset"]]
            if not result:
                with trio.move_on_after(1):
                    await trio.sleep_forever()
        else:
            self.sent.append(body)
            self.news.set()
        text = json.dumps({"ok": True, "result": result}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode()
        await stream.send_all(head + text)

    def message(self, text: str, language: str = "vi") -> None:
        number = len(self.updates) + 1
        chat = {"id": 7, "type": "private"}
        sender = {"id": 7, "is_bot": False, "language_code": language}
        message = {"message_id": number, "chat": chat, "from": sender, "text": text}
        self.updates.append({"update_id": number, "message": message})

    async def next_sent(self) -> str:
        with trio.fail_after(PATIENCE):
            while not self.sent:
                self.news = trio.Event()
                await self.news.wait()
        return str(self.sent.pop(0)["text"])


@asynccontextmanager
async def running_bot(daemon: Daemon, key_file: Path, bot_api: BotApi) -> AsyncIterator[Path]:
    """Run the bot. Yield the file with what it prints."""
    token_file, log = key_file.with_name("token"), key_file.with_name("log")
    token_file.write_text(TOKEN)
    with log.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            ["env", "--default-signal=INT", sys.executable, str(EXAMPLES / "telegram_bot.py")],
            env={
                "PATH": os.environ["PATH"],
                "SMARTLINKD_URL": daemon.url,
                "SMARTLINKD_KEY_FILE": str(key_file),
                "BOT_TOKEN_FILE": str(token_file),
                "BOT_API": bot_api.url,
            },
            stderr=stderr,
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGINT)
        with trio.fail_after(PATIENCE):
            assert await process.wait() == 0
    assert TOKEN not in log.read_text()
    assert not daemon.secrets_in(log.read_text())


@pytest.fixture
async def bot_api(nursery: trio.Nursery) -> AsyncIterator[BotApi]:
    made = BotApi()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, made.answer, listeners)
    made.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    yield made
    nursery.cancel_scope.cancel()


async def test_telegram_bot_answers_with_own_links(
    daemon: Daemon, portal: Portal, key_file: Path, bot_api: BotApi
) -> None:
    async with running_bot(daemon, key_file, bot_api):
        bot_api.message("chào bạn")  # without a link: no answer
        bot_api.message(f"Deal: {portal.link(portal.item())} nhanh!")
        assert re.fullmatch(rf"Deal: {portal.origins.short}/\w+ nhanh!", await bot_api.next_sent())
        assert bot_api.sent == []


@pytest.mark.parametrize(
    "said_for",
    [
        ("human_check", "vi", "Tài khoản đang tạm dừng"),
        ("human_check", "en", "The account is paused"),
        ("session_lost", "vi", "Phiên đăng nhập đã hết"),
        ("page_500", "en", "No links can be made"),
    ],
)
async def test_telegram_bot_says_what_the_account_needs(
    daemon: Daemon,
    portal: Portal,
    key_file: Path,
    bot_api: BotApi,
    said_for: tuple[str, str, str],
) -> None:
    fault, language, sentence = said_for
    account: Account = portal.account()
    await daemon.sync(account)
    await portal.arm(fault, account)
    async with running_bot(daemon, key_file, bot_api):
        bot_api.message(portal.link(portal.item()), language)
        said = await bot_api.next_sent()
    assert said.startswith(sentence)
    assert said.count(".") == 1


async def test_python_snippet_converts(daemon: Daemon, portal: Portal, key_file: Path) -> None:
    link = portal.link(portal.item())
    program = str(EXAMPLES / "snippets/convert.py")
    code, out, err = await run(sys.executable, program, link, daemon=daemon, key_file=key_file)
    assert code == 0, err
    assert out.startswith(f"{link} {portal.origins.short}/")


@NODE
async def test_node_snippet_converts(daemon: Daemon, portal: Portal, key_file: Path) -> None:
    links = [portal.link(portal.item()) for _ in range(16)]
    program = str(EXAMPLES / "snippets/convert.mjs")
    code, out, err = await run("node", program, *links, daemon=daemon, key_file=key_file)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()] == links


SHEET = """
const cells = JSON.parse(require("fs").readFileSync(0, "utf8"));
const { execFileSync } = require("child_process");
const key = require("fs").readFileSync(process.env.SMARTLINKD_KEY_FILE, "utf8");
const properties = { SMARTLINKD_URL: process.env.SMARTLINKD_URL, SMARTLINKD_KEY: key };
const range = {
  getValues: () => cells.map((cell) => [cell]),
  getNumColumns: () => 1,
  offset: (row, column, rows) => ({
    setValues: (values) => console.log(JSON.stringify({ row, column, rows, values })),
  }),
};
globalThis.SpreadsheetApp = { getActiveRange: () => range };
globalThis.PropertiesService = {
  getScriptProperties: () => ({ getProperty: (name) => properties[name] }),
};
// Apps Script's fetch does not return before the answer is there.
globalThis.UrlFetchApp = {
  fetch: (url, options) => {
    const header = `Authorization: ${options.headers.Authorization}`;
    const text = execFileSync(
      "curl",
      ["-s", "-w", "\\n%{http_code}", url, "-H", header, "-d", options.payload,
       "-H", `Content-Type: ${options.contentType}`],
      { encoding: "utf8" },
    );
    const end = text.lastIndexOf("\\n");
    return {
      getContentText: () => text.slice(0, end),
      getResponseCode: () => Number(text.slice(end + 1)),
    };
  },
};
(0, eval)(require("fs").readFileSync(process.argv[1], "utf8") + "; convertSelection();");
"""


@NODE
async def test_google_sheet_fills_the_column_beside_the_selection(
    daemon: Daemon, portal: Portal, key_file: Path
) -> None:
    cells = [portal.link(portal.item()), "", "https://example.org/", portal.link(portal.item())]
    script = str(EXAMPLES / "google_sheets.gs")
    code, out, err = await run(
        "node", "-e", SHEET, script, daemon=daemon, key_file=key_file, stdin=json.dumps(cells)
    )
    assert code == 0, err
    written = json.loads(out)
    assert (written["row"], written["column"], written["rows"]) == (0, 1, 4)
    first, empty, none, last = (row[0] for row in written["values"])
    assert first.startswith(portal.origins.short)
    assert last.startswith(portal.origins.short)
    assert (empty, none) == ("", "failCode 10")


async def test_n8n_workflow_is_connected_and_its_request_works(
    daemon: Daemon, portal: Portal
) -> None:
    await daemon.sync(portal.account())
    workflow = json.loads((EXAMPLES / "n8n-workflow.json").read_text())
    nodes = {node["name"]: node for node in workflow["nodes"]}
    hook = next(name for name, node in nodes.items() if node["type"].endswith(".webhook"))
    chain = [hook]
    while following := workflow["connections"].get(chain[-1]):
        [[target]] = following["main"]
        chain.append(target["node"])
    assert [nodes[name]["type"].rpartition(".")[2] for name in chain] == [
        "webhook",
        "httpRequest",
        "respondToWebhook",
    ]
    request = nodes[chain[1]]["parameters"]
    link = portal.link(portal.item())
    # n8n's expression, as it would fill it for this message.
    expression = request["jsonBody"].removeprefix("={{ ").removesuffix(" }}")
    assert expression == 'JSON.stringify({ text: $json.body.text, subIds: ["n8n"] })'
    path = httpx.URL(request["url"].removeprefix("=")).path
    body = {"text": link, "subIds": ["n8n"]}
    key = await key_for(daemon, "convert")
    answer = await daemon.ask(request["method"], path, body, token=key)
    assert answer.json()["text"].startswith(portal.origins.short)


@pytest.mark.parametrize("file", ["prometheus-rules.yml", "grafana-dashboard.json"])
async def test_metrics_of_dashboard_and_alerts_exist(
    crew_daemon: Daemon, portal: Portal, file: str
) -> None:
    await crew_daemon.sync(portal.account())
    text = (await crew_daemon.ask("GET", "/metrics")).text
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    known |= {f"{name}_bucket" for name in known}
    named = set(re.findall(r"\b(?:smartlinkd|process)_\w+", (EXAMPLES / file).read_text()))
    assert named
    assert named <= known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
async def test_prometheus_takes_the_rules() -> None:
    await trio.run_process(["promtool", "check", "rules", str(EXAMPLES / "prometheus-rules.yml")])


def test_proxies_are_those_of_the_document() -> None:
    document = (ROOT / "docs/operating.md").read_text()
    for name in ("Caddyfile", "nginx.conf"):
        lines = (EXAMPLES / name).read_text().splitlines()
        text = "\n".join(line for line in lines[1:] if not line.strip().startswith("#"))
        shown = "\n".join(
            line for line in document.splitlines() if not line.strip().startswith("#")
        )
        assert text in shown
