"""The reaper: a small process that runs one command and guarantees that its whole tree ends.

It is the subreaper of all below it (prctl(2)), so whatever loses its parent becomes its child. It
ends the tree when the command ends, when the tree uses too much memory, or when the control pipe is
closed, because the daemon let go or died.

Only the standard library is imported: its parent, `fork_server.py`, is run with `-I -S`.
docs/decisions/040-process-trees.md and 042-memory-limits.md tell what was rejected.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

CHANNEL: Final = 3
"""The command's descriptor for its channel: the one number that every shell can redirect."""

KILL_LIMIT: Final = 5.0
"""Seconds for a killed tree to end. It takes milliseconds, or for ever on a dead disk."""
LOOK_AGAIN_MS: Final = 10
LOOK_EVERY: Final = 0.1
"""Seconds between two measurements of the tree's memory."""
OOM_SCORE: Final = 500
"""Added to a limited tree's badness; 1000 is all of the host's memory (proc(5))."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_OWN_CHILDREN: Final = "/proc/thread-self/children"


class CommandSpec(NamedTuple):
    """A command and how it is run.

    Attributes:
        environment: all of its environment.
        folder: its working folder.
        user: the user and group id that it drops to, without supplementary groups.
        memory: bytes that the whole tree may use.
        file_size: bytes that one file may have.
        remove: a folder to remove, with all it holds, once the tree has ended.
    """

    command: list[bytes]
    environment: dict[bytes, bytes]
    folder: bytes
    user: tuple[int, int] | None = None
    memory: int | None = None
    file_size: int | None = None
    remove: bytes | None = None

    def encode(self) -> bytes:
        """Return the content of the file that a reaper reads. Both sides are the same Python."""
        return marshal.dumps(tuple(self))

    @classmethod
    def decode(cls, content: bytes) -> CommandSpec:
        """Return the spec that was encoded."""
        return cls(*marshal.loads(content))  # noqa: S302 - it comes from the daemon alone


def main(descriptors: list[int]) -> None:
    """Run one command, and report its progress in lines on the status pipe.

        reaper PID          this process
        started PID         the command runs
        failed ERRNO STEP   it could not be started
        ended WAITSTATUS    it has ended
        excess BYTES        its tree is ended because it used that much memory
        gone                no process is left
        removed             its folder is removed, if there is one to remove
        left WHAT           something has not ended or is not removed

    The reaper was killed if the pipe closes before `gone` or `left`.

    Args:
        descriptors: the status pipe; a file with the encoded `CommandSpec`; the control pipe, of
            which each byte is a signal for the command's process group, and end of file ends the
            tree; the command's standard input, output and error; its channel, if it has one.
    """
    status, spec_file, control, *streams = descriptors
    report(status, f"reaper {os.getpid()}")
    try:
        os.lseek(spec_file, 0, os.SEEK_SET)  # the daemon left it at its end
        spec = CommandSpec.decode(read_all(spec_file))
        supervise(spec, status, control, streams)
        if spec.remove is not None:
            fault = remove_folder(spec.remove)
            report(status, f"left {fault}" if fault else "removed")
    except BaseException as error:
        report(status, f"left {error!r}".replace("\n", " "))
        raise


def report(status: int, line: str) -> None:
    """Write one line to the status pipe. Nothing happens if the daemon has gone."""
    try:
        os.write(status, f"{line}\n".encode())
    except BrokenPipeError:
        return  # the control pipe tells it, too


def supervise(spec: CommandSpec, status: int, control: int, streams: list[int]) -> None:
    """Run the command until it ends or has to end, and then end its tree.

    Raises:
        OSError: as `become_subreaper` and `end_tree`.
    """
    wake = become_subreaper()
    try:
        if not is_hung_up(control):  # the daemon may have died while this process was forked
            children()  # no tree is started whose end could not be guaranteed
            pid = start(spec, streams)
            report(status, f"started {pid}")
            follow(pid, status, control, wake, spec.memory)
    except OSError as error:
        report(status, f"failed {error.errno or errno.EIO} {error.filename or 'start'}")
    finally:
        left = end_tree(wake)
        report(status, f"left {left}" if left else "gone")


def start(spec: CommandSpec, streams: list[int]) -> int:
    """Execute the command in a child. Return its process id, once its program runs.

    The streams are closed: a peer has to see it when the command closes its own.

    Raises:
        OSError: it could not be executed. The file name is the step that failed.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        step = "start"
        try:
            prepare(spec, streams)
            step = "folder"
            os.chdir(spec.folder)
            step = "user"
            if spec.user is not None:
                drop_privileges(*spec.user)
            step = "exec"
            os.execvpe(spec.command[0], spec.command, spec.environment)  # noqa: S606 - no shell
        except (OSError, ValueError) as error:  # ValueError: text that execve(2) cannot be given
            os.write(write_end, f"{getattr(error, 'errno', errno.EINVAL)} {step}".encode())
        finally:
            os._exit(127)
    for descriptor in (write_end, *streams):
        os.close(descriptor)
    if fault := read_all(read_end):  # empty: executing the program closed the pipe
        number, _, step = fault.decode().partition(" ")
        raise OSError(int(number), os.strerror(int(number)), step)
    return pid


def prepare(spec: CommandSpec, streams: list[int]) -> None:
    """Give the child that is to execute a command its streams, session, limits and signals."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)  # the fork server reserved these numbers
    os.setsid()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    forbid_core_dumps()
    if spec.file_size is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = spec.file_size if hard == resource.RLIM_INFINITY else min(spec.file_size, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if spec.memory is not None:
        # Should the host itself run out of memory, the kernel ends this tree before the daemon.
        with open("/proc/self/oom_score_adj", "r+b", buffering=0) as score:
            score.write(b"%d" % min(1000, int(score.read()) + OOM_SCORE))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def forbid_core_dumps() -> None:
    """Keep what is in a command's memory (cookies, keys) off the disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    # A limit of 0 is for files alone. A core that is piped to a collector is not made at a limit
    # of 1 (core(5)), and neither is a file, which has at least a page.
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def drop_privileges(uid: int, gid: int) -> None:
    """Become this user for good, in this group alone. Raises `OSError` unless root calls it."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def follow(pid: int, status: int, control: int, wake: int, memory: int | None) -> None:
    """Pass on signals and reap orphans until the tree has to end.

    That is when the command ends, the control pipe closes, or the tree uses more than `memory`
    bytes.
    """
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    next_look = time.monotonic() + LOOK_EVERY
    while True:
        wait_ms = None if memory is None else max(0.0, next_look - time.monotonic()) * 1000
        ready = [descriptor for descriptor, _ in poll.poll(wait_ms)]
        if wake in ready:
            drain(wake)
            dead, _ = reap()
            if pid in dead:
                report(status, f"ended {dead[pid]}")
                return
        if control in ready:
            numbers = os.read(control, 64)
            if not numbers:
                return
            for number in numbers:
                os.killpg(pid, number)  # the command leads its group, and is not reaped yet
        if memory is not None and time.monotonic() >= next_look:
            used = memory_used(memory)
            if used > memory:
                report(status, f"excess {used}")
                return
            next_look = time.monotonic() + LOOK_EVERY


def end_tree(wake: int) -> str:
    """Kill and reap all descendants. Return what did not end within `KILL_LIMIT`, mostly "".

    Killing our children makes theirs ours, so each round goes down one generation.

    Raises:
        OSError: no descriptor was left to list them.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    deadline = time.monotonic() + KILL_LIMIT
    while time.monotonic() < deadline:
        kill(children())
        if not reap()[1]:
            return ""
        if poll.poll(LOOK_AGAIN_MS):
            drain(wake)
    return f"processes {children()} do not end"


# Children


def become_subreaper() -> int:
    """Adopt orphans from now on. Return a descriptor that is readable after a child's death.

    Raises:
        OSError: no descriptor is left, or the kernel is too old.
    """
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return wake


def drain(wake: int) -> None:
    """Empty the pipe, before `reap()`: a later death makes it readable again."""
    os.read(wake, 4096)


def reap() -> tuple[dict[int, int], bool]:
    """Return the wait status of each child that has died, and True if any child is left."""
    dead: dict[int, int] = {}
    try:
        while True:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return dead, True
            dead[pid] = wait_status
    except ChildProcessError:
        return dead, False


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to children of ours, whose process ids are theirs until we reap them."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            continue  # another user's by now; the caller looks again at what is left


def children(path: str = _OWN_CHILDREN) -> list[int]:
    """Return the children that the kernel lists in a file: ours, or those of another thread.

    Raises:
        OSError: the kernel has no such list, the thread has ended, or no descriptor is left.
    """
    return [int(pid) for pid in read_all(os.open(path, os.O_RDONLY)).split()]


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Raises `OSError` if the kernel refuses it."""
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl", "prctl")


def is_hung_up(pipe: int) -> bool:
    """Return True if nobody can write to the pipe of this read end any more."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def read_all(descriptor: int) -> bytes:
    """Read a file to its end, and close it."""
    with open(descriptor, "rb", buffering=0) as file:
        return file.readall()


# Memory


def memory_used(enough: int) -> int:
    """Return the bytes of memory and swap that the tree uses, or a bound that is at most `enough`.

    The upper bound is cheap: it counts shared pages once for each process. For fair shares the
    kernel has to look at every page.
    """
    try:
        tree = tree_of(children())
    except OSError:
        return 0  # no descriptor is left to list them
    bound = sum(kibibytes(f"/proc/{pid}/status", (b"VmRSS", b"VmSwap")) for pid in tree) * 1024
    return bound if bound <= enough else sum(fair_share(pid) for pid in tree) * 1024


def memory_of_tree(pid: int) -> int:
    """Return the bytes of memory and swap that a process and all below it use, in fair shares.

    Of processes that we may not look into, only what they share with none; 0 without a descriptor.
    """
    own = (b"RssAnon", b"VmSwap")
    return sum(fair_share(each, otherwise=own) for each in tree_of([pid])) * 1024


def fair_share(pid: int, otherwise: tuple[bytes, ...] = (b"VmRSS", b"VmSwap")) -> int:
    """Return the KiB of a process; a shared page counts in part for each that has it.

    Of one that we may not look into (it is not dumpable, or root has no capabilities), the sum of
    the figures `otherwise`.
    """
    share = kibibytes(f"/proc/{pid}/smaps_rollup", (b"Pss", b"SwapPss"))
    return share or kibibytes(f"/proc/{pid}/status", otherwise)


def kibibytes(path: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of these figures in a file under /proc; 0 if its process has gone."""
    try:
        content = read_all(os.open(path, os.O_RDONLY))
    except OSError:
        return 0
    pairs = [line.partition(b":") for line in content.split(b"\n")]
    return sum(int(figure.split()[0]) for name, _, figure in pairs if name in names)


def tree_of(to_visit: list[int]) -> list[int]:
    """Return these processes and all below them, as far as they do not change meanwhile."""
    found: list[int] = []
    while to_visit:
        pid = to_visit.pop()
        found.append(pid)
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # it has ended: its children are another's now
        for thread in threads:
            try:
                to_visit += children(f"/proc/{pid}/task/{thread}/children")
            except OSError:
                continue  # this thread has: its children are another thread's
    return found


# Folders


def remove_folder(folder: bytes) -> str:
    """Remove a folder and all it holds, following no symbolic link.

    Return why something is left, mostly "". One thing that cannot be removed keeps no other.
    """
    try:
        os.rmdir(folder)  # an empty one needs no descriptor, of which none may be left
    except FileNotFoundError:
        return ""  # its command removed it, as by a shell's `trap 'rm -r "$TMPDIR"' EXIT`
    except OSError:
        why = empty_folder(folder)
    else:
        return ""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        why = why or str(error)
    return why and f"the folder cannot be removed: {why}"


def empty_folder(folder: bytes) -> str:
    """Remove all that a folder holds, in the same way. Return why something is left, mostly ""."""
    faults: list[str] = []

    def attempt(change: Callable[[bytes, int], None], name: bytes, parent: int) -> None:
        try:
            change(name, parent)
        except OSError as error:
            faults.append(str(error))

    try:
        make_writable(folder)
        for _, folders, _, parent in os.fwalk(folder):
            for name in folders:
                attempt(make_writable, name, parent)
        for _, folders, files, parent in os.fwalk(folder, topdown=False):
            for name in files + folders:
                attempt(remove_entry, name, parent)
    except (OSError, RecursionError) as error:  # fwalk() recurses before Python 3.12
        faults.append(str(error))
    return faults[0] if faults else ""


def make_writable(folder: bytes, parent: int | None = None) -> None:
    """Take the write-protection from a folder. Raises `OSError` if it is another user's."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except NotADirectoryError:
        return  # a symbolic link to a folder
    try:
        os.chmod(b"/proc/self/fd/%d" % descriptor, 0o700)
    finally:
        os.close(descriptor)


def remove_entry(name: bytes, parent: int) -> None:
    """Remove a file, a link or an empty folder. Raises `OSError` if that is not allowed."""
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=parent)
