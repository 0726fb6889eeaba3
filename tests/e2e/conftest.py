"""Fixtures that run the daemon as its owner does: a process, a configuration, and a sandbox portal.

Most tests share a few daemons, because a program and its Chromium take more than a second to start.
They may: each account, item and fault is used by one test. Programs are plain processes, because
trio's fixtures end with their test. Each daemon has its own folder for state, log and temporary
files. A stopped daemon is checked for what it left and for secrets in its log.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import trio

from smartlinkd.auth.passwords import hash_password
from smartlinkd.sandbox.batch import Origins, long_link, short_code
from smartlinkd.sandbox.products import (
    FULL_RATE,
    SandboxProduct,
    image_url,
    product_link,
    product_of,
)
from tests.config_file import Table, Tables, write_config
from tests.hygiene.fork_server import fork_server_sockets
from tests.programs import PASSWORD, ROOT, SANDBOX_ADDRESSES, Account, NotStarted, Program

__all__ = ["PASSWORD", "ROOT", "Account"]  # the tests take them from here

DEFAULT_CAP = 40_000
PATIENCE = 45.0
"""Seconds for anything that is sure to come. Only a failing test waits that long."""
LOOK_EVERY = 0.01
LEFT = 2.0
"""Seconds within which the processes that a killed daemon has started end."""

Json = dict[str, Any]
T = TypeVar("T")
DEAL_POST: Json = {
    "name": "deal-post",
    "runner": "command",
    "command": [sys.executable, "-m", "smartlinkd.crews.deal_post"],
    "tools": ["convert_links"],
    "inputs": [{"name": "links"}, {"name": "language", "default": "vi"}],
    "deadline": 60,
    "grace": 1,
}
"""The configuration of the example crew."""


class TracedProgram(Program):
    """`python -m smartlinkd …` as a process, in which a warning is an error.

    A process that does not end in time writes its tasks and threads to its log (`traced.py`).
    """

    python = (sys.executable, "-W", "error")
    process_group = None

    def __init__(self, *words: str, folder: Path) -> None:
        self.folder = folder
        super().__init__("tests.e2e.traced", *words, folder=folder, log=folder / "log")

    async def ended(self) -> int:
        """Wait for the process's end and return its exit code."""
        try:
            return await trio.to_thread.run_sync(self.process.wait, PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR2)
            self.wait_for("Thread 0x|Current thread", self.log)
            raise AssertionError(self.log.read_text(encoding="utf-8")) from None


@dataclass
class Portal:
    """The sandbox's process: its switches, its log, and the answers that it should give."""

    origins: Origins
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 500_000_000))

    def account(self) -> Account:
        """Return an account that no test has used."""
        return Account(str(next(self._numbers)))

    def owner(self, app_id: str) -> Account:
        """Return the account that the Open API uses for an application."""
        return Account(app_id)

    def item(self) -> int:
        """Return an item that no test has used and that has no special meaning."""
        return next(self._numbers)

    async def arm(self, fault: str, account: Account) -> None:
        """Let a fault happen once to an account."""
        body = {"fault": fault, "times": 1, "account": account.number}
        await self._call("POST", "faults", body)

    async def delay(self, *, submit_ms: int) -> None:
        """Delay every submit by `submit_ms` milliseconds."""
        await self._call("POST", "delay", {"submit_ms": submit_ms})

    async def counted(self, what: str) -> int:
        """Return a counter of the sandbox."""
        return int((await self._call("GET", "log"))["counters"].get(what, 0))

    async def submits(self, account: Account) -> list[Json]:
        """Return the account's submits so far, oldest first."""
        log = await self._call("GET", "log")
        return [one for one in log["submits"] if one["account"] == account.number]

    async def overlapping(self, account: Account) -> int:
        """Return the largest number of submits of the account that ran at the same time."""
        log = await self._call("GET", "log")
        return int(log["accounts"][account.number]["overlapping"])

    async def submitting(self, account: Account, *, nth: int = 1) -> None:
        """Wait until the account's `nth` submit has begun."""

        async def begun() -> bool:
            return len(await self.submits(account)) >= nth

        await until(f"submit {nth} of account {account.number}", begun)

    def link(self, item: int) -> str:
        """Return an item's canonical link."""
        return product_link(product_of(item), self.origins.shop)

    def short(self, code: str) -> str:
        return f"{self.origins.short}/{code}"

    def entry(self, item: int, account: Account, *sub_ids: str, product: bool = True) -> Json:
        """Return the entry that a client must get for an item."""
        sold = product_of(item)
        places = [*sub_ids, *[""] * (5 - len(sub_ids))]
        long = long_link(sold.shop_id, item, account.number, places, self.origins)
        return {
            "shortLink": self.short(short_code(long)),
            "longLink": long,
            "failCode": 0,
            "product": self.product(sold) if product else None,
        }

    def product(self, sold: SandboxProduct) -> Json:
        """Return the thirteen fields of a product, computed from the sandbox's figures."""
        cap = DEFAULT_CAP if sold.cap is None else sold.cap
        platform = min(sold.platform_commission, cap)
        return {
            "name": sold.name,
            "price": sold.price,
            "image": image_url(sold),
            "shopName": sold.shop_name,
            "rating": None if sold.rating is None else _decimal(Decimal(str(sold.rating)), "0.1"),
            "sales": sold.sold,
            "commission": sold.seller_commission + platform,
            "commissionRate": _decimal(Decimal(sold.default_rate) * 100 / FULL_RATE, "0.01") + "%",
            "sellerCommission": sold.seller_commission,
            "platformCommission": platform,
            "isXtra": bool(sold.seller_rate),
            "cap": cap,
            "productLink": product_link(sold, self.origins.shop),
        }

    async def _call(self, method: str, path: str, body: object = None) -> Json:
        answer = await _request(self.origins.portal, method, f"/_sandbox/{path}", body)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found


@dataclass
class Daemon:
    """A running daemon, and requests to it."""

    config: Path
    secrets: set[str] = field(default_factory=lambda: {PASSWORD})
    password: str = PASSWORD
    token: str = ""
    sessions: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        settings = tomllib.loads(self.config.read_text())
        self.state = Path(settings["state"]["directory"])
        self.start()

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        self.program = TracedProgram(
            "serve", "--config", str(self.config), folder=self.config.parent
        )

    def start(self) -> None:
        """Start the process and wait until it serves. Chromium may not be ready yet."""
        self.spawn()
        try:
            found = self.program.wait_for(r'"serving on (http://[0-9.:]+)"', self.program.log)
        except NotStarted:
            self.program.stop()
            raise
        self.url = found[1]

    async def kill(self) -> None:
        """Kill the process, and wait until every process that it started has ended."""
        self.program.process.kill()
        self.program.process.wait()
        await until_met(lambda: not self.processes(), within=LEFT)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request on a new connection. An error's text must not repeat a secret."""
        sent = dict(headers or {})
        if token:
            sent["Authorization"] = f"Bearer {token}"
        answer = await _request(self.url, method, path, body, sent)
        if answer.status_code >= 400:
            assert not self.secrets_in(answer.text), path
        return answer

    async def login(self) -> str:
        """Log in at the first call; return the session token."""
        if not self.token:
            answer = await self.ask("POST", "/api/auth/login", {"password": self.password})
            assert answer.status_code == 200, answer.text
            self.token = answer.json()["token"]
            self.secrets.add(self.token)
        return self.token

    async def page_session(self) -> tuple[str, str]:
        """Log in like the page; return the session cookie's name and value."""
        body = {"password": self.password, "session": "cookie"}
        answer = await self.ask("POST", "/api/auth/login", body)
        assert answer.status_code == 200, answer.text
        name, _, value = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
        self.secrets.add(value)
        return name, value

    async def convert(
        self, *links: str, account: Account | None, sub_ids: list[str] | None = None
    ) -> httpx.Response:
        """Convert links with the account's cookie, or with the stored one if `account` is None."""
        body: Json = {"links": links}
        if sub_ids is not None:
            body["subIds"] = sub_ids
        if account is not None:
            body["cookie"] = account.cookie
            self.secrets |= account.secrets
        return await self.ask("POST", "/api/convert", body, token=await self.login())

    async def sync(self, account: Account) -> None:
        """Store the account's cookie."""
        self.secrets |= account.secrets
        answer = await self.ask("POST", "/api/sync-cookie", {"cookie": account.cookie})
        assert answer.status_code == 200, answer.text

    async def ready(self) -> bool:
        """Return health's `browserReady`."""
        answer = await self.ask("GET", "/api/health")
        assert (answer.status_code, answer.json()["ok"]) == (200, True)
        return bool(answer.json()["browserReady"])

    async def until_ready(self) -> None:
        await until("browserReady true", self.ready)

    async def until_not_ready(self) -> None:
        async def not_ready() -> bool:
            return not await self.ready()

        await until("browserReady false", not_ready)

    async def until(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        """Poll `look` until it is true."""
        await until(what, look)

    async def status(self) -> Json:
        answer = await self.ask("GET", "/api/status", token=await self.login())
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def metrics(self) -> dict[str, float]:
        """Return the metrics: `name{label="value"}` → value."""
        answer = await self.ask("GET", "/metrics")
        lines = (line for line in answer.text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    async def run(self, *words: str) -> str:
        """Run a command for this daemon and return its output."""
        command = [sys.executable, "-m", "smartlinkd", *words, "--config", str(self.config)]
        done = await trio.run_process(command, cwd=ROOT, capture_stdout=True)
        return done.stdout.decode()

    # The daemon's processes, folders and descriptors

    def processes(self) -> set[int]:
        """Return the running processes of the daemon's browsers and workers, and their reapers.

        Chromium overwrites its environment, so its processes are found by their session id, which
        they keep.
        """
        marked = {pid for pid in _pids() if self._is_marked(pid)}
        self.sessions |= {_session_of(pid) for pid in marked} - {0, _session_of(os.getpid())}
        return marked | {pid for pid in _pids() if _session_of(pid) in self.sessions}

    def workers(self) -> dict[str, set[int]]:
        """Return the processes of each execution, without their reapers."""
        found: dict[str, set[int]] = {}
        for pid in self.processes():
            if execution := re.search(rb"\0SMARTLINKD_EXECUTION=([^\0]+)", _environ_of(pid)):
                found.setdefault(execution[1].decode(), set()).add(pid)
        return found

    def profiles(self) -> list[str]:
        """Return the names of the folders of the daemon's browsers and workers."""
        of_browsers = self.program.folder.glob("smartlinkd-*")
        return sorted(entry.name for entry in (*of_browsers, *self.state.glob("runs/*")))

    def descriptors(self) -> list[str]:
        """Return the kinds of the daemon's open descriptors; an empty list if we are not root.

        The socket to the fork server is left out, because it is opened at first use.
        """
        folder = Path(f"/proc/{self.program.process.pid}/fd")
        asked = fork_server_sockets()
        found = []
        with suppress(PermissionError):
            for entry in folder.iterdir():
                with suppress(FileNotFoundError):  # closed since it was listed
                    found.append(str(entry.readlink()))
        return sorted(re.sub(r"\d+", "", each) for each in found if each not in asked)

    def wait_for_browser(self) -> None:
        """Wait until the daemon's first browser was ready."""
        self.program.wait_for("the browser is ready", self.program.log)

    def secrets_in(self, text: str) -> list[str]:
        """Return the secrets in a text. A number does not count inside a longer number."""
        found = (re.search(rf"(?<!\d){re.escape(one)}(?!\d)", text) for one in self.secrets)
        return [match[0] for match in found if match]

    def check_left_nothing(self, code: int) -> None:
        """Check that the daemon ended with code 0, left nothing, and logged no secret."""
        log = self.program.log.read_text()
        assert code == 0, log
        assert (self.processes(), self.profiles()) == (set(), [])
        assert not (self.state / "control.sock").exists()
        assert not self.secrets_in(log)
        assert "fault of its own" not in log
        assert '"exception"' not in log, log

    def _is_marked(self, pid: int) -> bool:
        environment, works_in = _environ_of(pid), _folder_of(pid)
        homes = self.program.folder / "smartlinkd-chromium-", self.state / "runs" / "smartlinkd-"
        return any(
            f"HOME={home}".encode() in environment or works_in.startswith(str(home))
            for home in homes
        )


async def until(what: str, look: Callable[[], Awaitable[T | None]]) -> T:
    """Poll `look` until it returns a true value; return that value."""
    with trio.move_on_after(PATIENCE):
        while not (seen := await look()):  # noqa: ASYNC110 - other processes set no events
            await trio.sleep(LOOK_EVERY)
        return seen
    raise AssertionError(f"{what}: not within {PATIENCE:g} s")


async def until_met(met: Callable[[], bool], *, within: float) -> None:
    """Poll `met` until it is true, for at most `within` seconds."""
    with trio.fail_after(within):
        while not met():  # noqa: ASYNC110 - the kernel sends no event
            await trio.sleep(LOOK_EVERY)


async def _request(
    base: str, method: str, path: str, body: object, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    url, content = httpx.URL(base + path), b"" if body is None else json.dumps(body).encode()
    sent = {
        "Host": url.netloc.decode(),
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
    }
    request = httpx.Request(
        method,
        url,
        headers={**sent, **(headers or {})},
        stream=_OnePieceBody(content),
        extensions={"timeout": httpx.Timeout(PATIENCE).as_dict()},
    )
    transport = httpx.AsyncHTTPTransport(verify=False)  # plain HTTP, so nothing to verify
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
        return await client.send(request)


class _OnePieceBody(httpx.AsyncByteStream):
    """A body in one piece. httpx's own is a generator, which the garbage collector closes if the
    daemon is killed during the request; trio warns of that."""

    def __init__(self, content: bytes) -> None:
        self._left = [content]

    def __aiter__(self) -> _OnePieceBody:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _decimal(number: Decimal, unit: str) -> str:
    """Round half-up to the decimals of `unit` at most; drop trailing zeros."""
    text = str(number.quantize(Decimal(unit), ROUND_HALF_UP))
    return text.rstrip("0").rstrip(".")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _session_of(pid: int) -> int:
    """Return a process's session id, or 0 if it has ended or is a zombie."""
    with suppress(OSError):
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if state == "Z" else int(session)
    return 0


def _environ_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _folder_of(pid: int) -> str:
    """Return a process's working directory, or "" if it has ended."""
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""


def _new_folder() -> Path:
    # pytest's folders are closed to Chromium's user.
    folder = Path(tempfile.mkdtemp(prefix="e2e-"))
    folder.chmod(0o755)
    return folder


Running = Callable[..., AbstractContextManager[Daemon]]
RunProgram = Callable[..., TracedProgram]


@pytest.fixture(scope="session")
def portal() -> Iterator[Portal]:
    """The sandbox that all tests share."""
    folder = _new_folder()
    program = TracedProgram("sandbox", "--port", "0", folder=folder)
    try:
        yield Portal(Origins(*program.wait_for(SANDBOX_ADDRESSES, program.output).groups()))
    finally:
        code = program.stop()
    assert code == 0, program.log.read_text()
    shutil.rmtree(folder)


SLOW = 250
"""Milliseconds: long enough to do something during a submit."""


@pytest.fixture
async def slow_submits(portal: Portal) -> AsyncIterator[None]:
    """Delay every submit during the test."""
    await portal.delay(submit_ms=SLOW)
    yield
    await portal.delay(submit_ms=0)


@pytest.fixture
def run_program() -> Iterator[RunProgram]:
    """Return a function that runs a command in a new folder; the command has to end within the
    test."""
    folder = _new_folder()
    program = None

    def run(*words: str) -> TracedProgram:
        nonlocal program
        program = TracedProgram(*words, folder=folder)
        return program

    yield run
    assert program is not None
    program.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def shared_open_folder() -> Iterator[Path]:
    """A folder that Chromium's user can read."""
    folder = _new_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def running(portal: Portal) -> Running:
    """Return a context manager that runs a daemon: `with running(browser={"queue": 2}) as daemon`.

    Arguments are tables of the configuration; `crews` is a list of tables.
    """
    hashed = hash_password(PASSWORD)

    @contextmanager
    def running(**given: Table | Sequence[Table]) -> Iterator[Daemon]:
        folder = _new_folder()
        try:
            daemon = Daemon(configure(folder, given))
            try:
                yield daemon
            finally:
                code = daemon.program.stop()
            daemon.check_left_nothing(code)
        finally:
            shutil.rmtree(folder)

    def configure(folder: Path, given: Tables) -> Path:
        tables: Tables = {
            "server": {"bind": "127.0.0.1:0"},
            "state": {"directory": str(folder / "state")},
            "auth": {"password_hash": hashed},
            "marketplace": {
                "portal_url": portal.origins.portal,
                "shop_url": portal.origins.shop,
                "short_urls": [portal.origins.short],
            },
            "logging": {"level": "debug"},
        }
        path = folder / "config.toml"
        write_config(path, tables, given)
        return path

    return running


@pytest.fixture(scope="session")
def daemon(running: Running) -> Iterator[Daemon]:
    """A daemon with default settings."""
    with running() as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture(scope="session")
def fetching(running: Running) -> Iterator[Daemon]:
    """A daemon with the other method for links (`fetch`) and for products (`page`)."""
    with running(
        marketplace={"method": "fetch"}, products={"method": "page"}, browser={"job_timeout": 15}
    ) as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture(scope="session")
def linking(running: Running) -> Iterator[Daemon]:
    """A daemon that reads no products, which saves a tab for each account."""
    with running(products={"source": "none"}) as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture(scope="session")
def impatient(running: Running) -> Iterator[Daemon]:
    """A daemon like `linking` with a short job timeout and a short queue."""
    with running(products={"source": "none"}, browser={"job_timeout": 8, "queue": 6}) as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture(scope="session")
def whole_chromium(running: Running) -> Iterator[Daemon]:
    """A daemon with the whole Chromium instead of the headless shell."""
    with running(browser={"executable": "/usr/bin/chromium"}) as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture(scope="session")
def crew_daemon(running: Running) -> Iterator[Daemon]:
    """A daemon with the example crew."""
    with running(crews=[DEAL_POST]) as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture(params=["daemon", "fetching", "whole_chromium"])
def any_daemon(request: pytest.FixtureRequest) -> Daemon:
    """Each daemon that must give the same answers."""
    found: Daemon = request.getfixturevalue(request.param)
    return found
