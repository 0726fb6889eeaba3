"""Chromium as a process: find one, launch it, read what the kernel shows of it.

    async with launch(LaunchSettings()) as chromium, connect(chromium.endpoint) as connection: ...

Each launch has a private folder in the temporary one, an environment without the daemon's secrets,
and an unprivileged user. The sandbox is off only where the configuration says so. No flag hides
that the browser is automated, and none must. See docs/decisions/058-running-chromium.md.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import trio

from smartlinkd.browser.cdp import CdpConnection
from smartlinkd.browser.errors import BrowserFailed, LaunchFailed
from smartlinkd.path_checks import mode_of
from smartlinkd.processes.process_tree import ExitStatus, ProcessTree, run_process_tree
from smartlinkd.processes.reaper import memory_of_tree
from smartlinkd.threads import on_thread
from smartlinkd.untrusted import first_line

logger = logging.getLogger(__name__)

# Programs themselves before scripts: Debian's `chromium-headless-shell` is a script that waits for
# the browser, so whoever kills it leaves the browser; its `chromium` adds a desktop's flags. The
# headless shell first, which starts in half the time and takes half the memory. `google-chrome` is
# a script too, but becomes the browser.
CANDIDATES = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
    "google-chrome-stable",
    "google-chrome",
    "chromium",
)
DEBIAN_WRAPPERS = {
    "/usr/bin/chromium-headless-shell": "/usr/lib/chromium/chromium-headless-shell",
    "/usr/bin/chromium": "/usr/lib/chromium/chromium",
}
REMEDY = (
    "install one (Debian: apt-get install chromium-headless-shell; elsewhere Google Chrome's own "
    "package) or set browser.executable to the path of a Chromium or Chrome"
)
SNAP = "is a snap, which a daemon cannot use"
REACH = (
    "let the daemon's user pass through every folder above it, or move it to where that user may; "
    "the installed service sees nothing of /home and /root"
)


def find_executable(
    setting: Path | None,
    *,
    candidates: Sequence[str] = CANDIDATES,
    wrappers: Mapping[str, str] = DEBIAN_WRAPPERS,
) -> Path:
    """Return the browser to start: `setting`, else the best one that is installed.

    A snap (Ubuntu's `chromium` is one) is never taken: it starts only from somebody's login, and
    sees none of the folders that it is given here.

    Args:
        setting: `browser.executable`, if it is set.
        candidates: paths, or names to look up in PATH; the best first.
        wrappers: by the path of a script, the program that it starts.

    Raises:
        LaunchFailed: there is none, or `setting` (`browser.executable`) cannot be used.
    """
    if setting is not None:
        chosen = Path(wrappers.get(str(setting), setting))
        try:
            mode = mode_of(chosen)
        except OSError as error:
            raise LaunchFailed(
                f"browser.executable: {chosen} cannot be looked at ({error.strerror}); {REACH}"
            ) from None
        if mode is None or not stat.S_ISREG(mode):
            raise LaunchFailed(f"browser.executable: there is no file {chosen}; {REMEDY}")
        if not os.access(chosen, os.X_OK):
            raise LaunchFailed(f"browser.executable: {chosen} is not executable; {REMEDY}")
        if _is_snap(chosen):
            raise LaunchFailed(f"browser.executable: {chosen} {SNAP}; {REMEDY}")
        return chosen
    found = [Path(path) for path in map(shutil.which, candidates) if path is not None]
    for program in found:
        if not _is_snap(program):
            return program
    if found:
        raise LaunchFailed(f"{found[0]} {SNAP}; {REMEDY}")
    raise LaunchFailed(f"no Chromium was found; {REMEDY}")


def _is_snap(program: Path) -> bool:
    # Each is a link to the one program that starts them.
    return program.resolve().name == "snap"


FLAGS = (
    "--headless",
    "--remote-debugging-port=0",  # a free one, which it writes to standard error
    # No question, page or program of its own. The full browser opens no window but ours.
    "--no-first-run",
    "--no-default-browser-check",
    "--no-startup-window",
    "--disable-search-engine-choice-screen",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-component-extensions-with-background-pages",
    "--disable-hang-monitor",
    "--disable-breakpad",
    "--password-store=basic",
    # No traffic of its own, and no QUIC, which closed networks do not carry.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--no-pings",
    # HttpsUpgrades would ask for https where the configuration says http.
    "--disable-features=Translate,MediaRouter,DialMediaRouteProvider,OptimizationHints,"
    "AutofillServerCommunication,CertificateTransparencyComponentUpdater,HttpsUpgrades",
    # The network service is a thread and not a process, as on Android: less memory, and a tenth
    # less time to a first page. On Linux its process has no sandbox that would be lost.
    "--enable-features=NetworkServiceInProcess2",
    # Nobody looks or listens, and hidden tabs must not be slowed down.
    "--mute-audio",
    "--disable-gpu",
    "--window-size=1366,900",
    # Without a GPU the CPU draws; this is a quarter of the pixels. Pages see the ratio of a reader
    # who has zoomed out.
    "--force-device-scale-factor=0.5",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)
# Chromium's processes share memory through /dev/shm, and crash when it is full (containers have
# 64 MiB there). The alternative writes what pages look like to a disk, so it is used only then.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written to
SHARED_MEMORY_NEEDED = 256 * 1024 * 1024  # bytes
ENDPOINT_LINE = re.compile(
    r"^DevTools listening on (ws://127\.0\.0\.1:\d{1,5}/devtools/browser/[0-9a-f-]{36})$",
    re.MULTILINE,
)
ENDPOINT_POLL_S = 0.002

SANDBOX_REMEDY = (
    "Chromium's sandbox cannot be used here: let unprivileged users create user namespaces (see "
    "sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, and AppArmor's "
    "restriction), or do without this protection by browser.no_sandbox = true"
)
_KNOWN_FAULTS = (
    ("No usable sandbox", SANDBOX_REMEDY),
    ("Failed to move to new namespace", SANDBOX_REMEDY),
    (
        "Running as root without --no-sandbox",
        "Chromium's sandbox does not work for root: set browser.user to an unprivileged user",
    ),
    (
        "ProcessSingleton",
        "Chromium cannot write its profile folder: the folder above it must be open to its user",
    ),
)
_LOG_PREFIX = re.compile(r"^\[[^\]]*\]\s*")
# Words that no other program writes at its end.
_CHROMIUM_MARKS = (":ERROR:", ":FATAL:", *(mark for mark, _ in _KNOWN_FAULTS))


@dataclass(frozen=True)
class LaunchSettings:
    """How to launch. Each field but the last two is the setting `browser.<field>`.

    Attributes:
        user: the user of the browser's processes, if the daemon is root.
        start_timeout: in seconds.
        profiles: the folder that profile folders are created in, by default that for temporary
            files. The browser's user must be able to pass through it.
        closed_ports: ports that no page reaches, on any host.
    """

    executable: Path | None = None
    user: str = "nobody"
    no_sandbox: bool = False
    start_timeout: float = 20.0
    profiles: Path | None = None
    closed_ports: tuple[int, ...] = ()


class Chromium:
    """A running Chromium, for the length of the block of `launch()`."""

    def __init__(self, process: ProcessTree, endpoint: str) -> None:
        self.pid = process.pid
        self.endpoint = endpoint  # "ws://127.0.0.1:PORT/devtools/browser/…"
        self._process = process

    async def wait(self) -> ExitStatus:
        """Wait for the end of its main process."""
        return await self._process.wait()

    async def early_end(self) -> LaunchFailed:
        """Wait for the end of its main process, and return the error that explains it."""
        await self._process.wait()
        return _ended_at_once(self._process)

    async def memory(self) -> int:
        """Return the bytes of memory that all its processes use, shared pages divided among them.

        0 if no descriptor is left to measure it. Raises `NoThread`.
        """
        return await on_thread(memory_of_tree, self.pid)


@asynccontextmanager
async def launch(settings: LaunchSettings) -> AsyncIterator[Chromium]:
    """Run a Chromium for the length of the block. Raises `LaunchFailed`."""
    executable = find_executable(settings.executable)
    user = _user(settings.user)
    process: ProcessTree | None = None
    chromium: Chromium | None = None
    try:
        with trio.move_on_after(settings.start_timeout) as startup:
            if settings.no_sandbox:
                logger.warning("Chromium runs without its sandbox (browser.no_sandbox)")
            folder = make_profile_folder(settings.profiles, user)
            async with run_process_tree(
                [str(executable), *_flags(folder, settings)],
                environment=_environment(folder),
                working_folder=folder,
                user=user,
                remove=folder,
            ) as process:
                endpoint = await _endpoint(process)
                chromium = Chromium(process, endpoint)
                startup.deadline = inf
                yield chromium
    except OSError as fault:
        if chromium is not None:
            raise  # the block's own
        as_user = f" as user {user.pw_name} (browser.user)" if user else ""
        raise LaunchFailed(f"{executable} cannot be started{as_user}: {fault}") from fault
    if chromium is None:
        reason = _reason(process.stderr_tail) if process else ""
        if process and not reason:
            reason = "it wrote nothing to its standard error, from which its address is read"
        raise LaunchFailed(
            f"Chromium was not ready within {settings.start_timeout:g} s "
            f"(browser.start_timeout){reason and ': '}{reason}"
        )


def _user(name: str) -> pwd.struct_passwd | None:
    """Return the user to run as, or None if the daemon is not root. Raises `LaunchFailed`."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise LaunchFailed(f"browser.user: there is no user {name!r} on this system") from None


def make_profile_folder(parent: Path | None, user: pwd.struct_passwd | None) -> Path:
    """Create a private folder. Raises `OSError`."""
    # No await between this and the start of the process tree, which removes the folder.
    folder = Path(tempfile.mkdtemp(prefix="smartlinkd-chromium-", dir=parent))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
    except OSError:  # in a container that may not give files away, say
        folder.rmdir()
        raise
    return folder


def _flags(folder: Path, settings: LaunchSettings) -> Iterator[str]:
    yield from FLAGS
    yield f"--user-data-dir={folder}"
    if settings.no_sandbox:
        yield "--no-sandbox"
    if settings.closed_ports:
        rules = (f"MAP *:{port} ~NOTFOUND" for port in settings.closed_ports)
        yield f"--host-resolver-rules={','.join(rules)}"
    if _shared_memory() < SHARED_MEMORY_NEEDED:
        yield "--disable-dev-shm-usage"


def _shared_memory() -> int:
    """Return the bytes that are free in /dev/shm."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return 0


def _environment(folder: Path) -> dict[str, str]:
    """Return the whole environment. Only the time zone comes from the daemon's."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
    }
    if "TZ" in os.environ:
        environment["TZ"] = os.environ["TZ"]
    return environment


async def _endpoint(process: ProcessTree) -> str:
    """Wait until Chromium has written where it listens. Returns the websocket's URL."""
    while True:
        if process.status is not None:
            raise _ended_at_once(process)
        if written := ENDPOINT_LINE.search(process.stderr_tail):
            return written[1]
        await trio.sleep(ENDPOINT_POLL_S)


def _ended_at_once(process: ProcessTree) -> LaunchFailed:
    reason = _reason(process.stderr_tail) or "it said nothing"
    exited = process.status is not None and process.status.code is not None
    if exited and not any(mark in process.stderr_tail for mark in _CHROMIUM_MARKS):
        reason += f"; if browser.executable is no Chromium or Chrome, {REMEDY}"
    return LaunchFailed(f"Chromium ended at once with {process.status}: {reason}")


def _reason(stderr: str) -> str:
    """Return the line of stderr that explains a failed start, or the remedy of a known fault."""
    for mark, remedy in _KNOWN_FAULTS:
        if mark in stderr:
            return remedy
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if ":ERROR:" in line or ":FATAL:" in line]
    last = (errors or lines or [""])[-1]
    return first_line(_LOG_PREFIX.sub("", last))


async def product(connection: CdpConnection) -> str:
    """Return its version, as "HeadlessChrome/156.0.8078.79". Raises as `CdpSession.call`."""
    return str((await connection.browser.call("Browser.getVersion"))["product"])


async def is_sandboxed(connection: CdpConnection) -> bool:
    """Return True if the kernel shows that all renderers are confined. One page must be open.

    They are more confined than the browser's main process: by seccomp, and by a namespace of their
    own for processes. Chromium makes that as an unprivileged user, so it takes one for users, too.
    A seccomp mode of 2 alone proves nothing: under a service manager's filter every process has it.
    So the number of filters is compared.

    Raises:
        BrowserFailed: no renderer can be seen, or a call to the browser failed.
    """
    answer = await connection.browser.call("SystemInfo.getProcessInfo")
    processes = [(entry["type"], entry["id"]) for entry in answer["processInfo"]]
    browser = next(pid for kind, pid in processes if kind == "browser")
    confined = []
    for renderer in [pid for kind, pid in processes if kind == "renderer"]:
        try:
            confined.append(is_confined(browser, renderer))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since
        except OSError as fault:  # permission is denied, or no descriptor is left
            raise BrowserFailed(f"Chromium's sandbox cannot be verified: {fault}") from None
    if not confined:
        raise BrowserFailed(
            "no page is open, or /proc does not show its renderer (see its mount option hidepid): "
            "Chromium's sandbox cannot be verified"
        )
    return all(confined)


def is_confined(browser: int, renderer: int) -> bool:
    """Return True if a renderer, by its pid, is more confined than the browser's main process.

    Raises `OSError` if /proc does not show one of them.
    """
    inner, outer = _status(renderer), _status(browser)
    has_filter = int(inner.get("Seccomp_filters", "0")) > int(outer.get("Seccomp_filters", "0"))
    # NSpid has one process id for each pid namespace that the process is in.
    return has_filter and len(inner["NSpid"].split()) > len(outer["NSpid"].split())


def _status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status, which every user may read."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
