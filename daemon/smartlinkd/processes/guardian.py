"""A guardian: runs one command as a process tree, and guarantees that the tree ends.

The problem: a browser is a dozen processes. Killing the first one leaves the others, killing its
process group misses those that left the group, a parent-death signal reaches one process only and
is tied to the thread that forked it, and nothing at all happens when the daemon itself is killed.

The choice: a small process between the daemon and the command. It is the subreaper of everything
below it, so whatever loses its parent becomes the guardian's own child, can be found and is
reaped. It ends the tree when the command ends, when the tree uses more memory than it may, or when
the write end of its lifeline pipe closes: that happens when the daemon lets go, and also when the
daemon dies, however it dies.

It is a fork of `fork_server.py`, which imports this file and nothing of the daemon's, because its
start is in front of the first command's, and which ends the tree of a guardian that was killed. It
does one order, and may then be given another (see `guardians.py`). With each it is given
descriptors, in this order:

    STATUS     a pipe for these lines: `guardian PID`, its own number; `started PID`, or
               `failed ERRNO STEP`; then `ended WAITSTATUS`, or `excess BYTES` before the tree is
               ended for its memory; `removing` when all of the tree has ended, and its folder is
               not empty; at last `gone`, or `left WHAT` when not all has ended or gone. When that
               is missing, it was killed.
    ORDER      a file with what is to be run, see `Order`.
    LIFELINE   a pipe. Each byte read is a signal number to send to the command's process group; end
               of file means: end the tree.
    STDIN, STDOUT, STDERR
               the command's, and until its tree has ended the guardian's own.
    CHANNEL    what the command gets as its descriptor 3, the one number that every shell can
               redirect; it may be absent.

The command is run in an own session, with no_new_privs and without core files. Rejected: a process
group (see above), a control group (not everywhere ours to make), and a walk through all of /proc by
parent (blind to processes that are not dumpable where /proc is mounted with hidepid; the kernel's
own list of a process's children is not).

The memory limit is measured and enforced here, up to twenty times a second, because no resource
limit means memory. RLIMIT_AS counts addresses, which cost nothing: under 512 MiB node does not
start, and Java not even under 2 GiB. RLIMIT_DATA counts the stacks of threads, used or not: 64
threads of a Python that uses 14 MiB come to 523 MiB. Both count each process for itself, and
neither tells that it was the cause. What may be used between two looks is some 100 MiB; for that
the tree is made the kernel's first choice, before the daemon, should the host itself run out.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import time

from .children import children, drain, kill, prctl, read_all, reap
from .removing import is_removed_empty, remove_folder
from .usage import memory_used, until_full

TYPE_CHECKING = False  # that of `typing` costs more than it is worth here
if TYPE_CHECKING:
    import signal
else:
    # All that is needed of it, without its enumerations, which take longer than the rest together.
    import _signal as signal

PR_SET_NO_NEW_PRIVS = 38

# A killed process is gone within milliseconds; one that waits for a dead disk may never be.
KILL_LIMIT = 5.0
# How soon to look for children again that were not there yet when the last look was made.
LOOK_AGAIN_MS = 10
CHANNEL = 3
# Where looking at the tree's memory takes long, it takes this share of the time at most.
LOOK_SHARE = 0.05
# Added to the kernel's badness (1000 is all of the host's memory) of a tree with a memory limit.
FIRST_CHOICE = 500


class Order:
    """What is to be run, as the content of a file: fields, each with a zero byte behind it."""

    def __init__(
        self,
        command: list[bytes],
        environment: dict[bytes, bytes],
        folder: bytes,
        *,
        user: tuple[int, int] | None,
        limits: tuple[int, int] | None,
        remove: bytes | None,
    ) -> None:
        """`environment` is all that it has, `folder` where it works. `user` is the UID and the GID
        that it drops to, without supplementary groups. `limits` are bytes: what the whole tree may
        use, and how large a file it may write. `remove` is a folder to remove with all it holds
        once the tree has ended."""
        self.command = command
        self.environment = environment
        self.folder = folder
        self.user = user
        self.limits = limits
        self.remove = remove

    def written(self) -> bytes:
        """As the content of a file. Raises `ValueError` for what execve(2) cannot be given."""
        head = [numbers_as_text(self.user), numbers_as_text(self.limits), self.remove or b""]
        entries = [name + b"=" + value for name, value in self.environment.items()]
        fields = [*head, self.folder, b"%d" % len(self.command), *self.command, *entries]
        if any(b"\0" in field for field in fields):
            raise ValueError("embedded null byte")
        if not self.command[0] or any(b"=" in (name or b"=") for name in self.environment):
            raise ValueError("no program, or an environment variable without a proper name")
        return b"".join(field + b"\0" for field in fields)

    @classmethod
    def read(cls, content: bytes) -> Order:
        user, limits, remove, folder, count, *rest = content.split(b"\0")[:-1]
        command, entries = rest[: int(count)], rest[int(count) :]
        pairs = [entry.partition(b"=") for entry in entries]
        return cls(
            command,
            {name: value for name, _, value in pairs},
            folder,
            user=numbers_of_text(user),
            limits=numbers_of_text(limits),
            remove=remove or None,
        )


def numbers_as_text(numbers: tuple[int, int] | None) -> bytes:
    return b"%d:%d" % numbers if numbers else b""


def numbers_of_text(text: bytes) -> tuple[int, int] | None:
    first, _, second = text.partition(b":")
    return (int(first), int(second)) if text else None


def main(descriptors: list[int], wake: int) -> None:
    """Do one order. `wake` is readable after a child's death; see `children.adopt`."""
    status, content, lifeline, *streams = descriptors
    report(status, f"guardian {os.getpid()}")
    try:
        left = guard(status, content, lifeline, streams, wake)
        let_go(lifeline)
    except BaseException as fault:
        report(status, f"left {fault!r}".replace("\n", " "))
        raise
    report(status, f"left {left}" if left else "gone")
    os.close(status)


def let_go(lifeline: int) -> None:
    """Let go of the lifeline, the command's streams and its folder. The channel was closed when
    the command had started."""
    os.close(lifeline)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(CHANNEL):
        os.dup2(nothing, number)
    os.close(nothing)
    os.chdir("/")


def guard(status: int, content: int, lifeline: int, streams: list[int], wake: int) -> str:
    """Run what is ordered, to the end of all its processes. What is left; mostly empty."""
    for number, descriptor in enumerate(streams[:CHANNEL]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    channel = streams[CHANNEL] if len(streams) > CHANNEL else None
    os.lseek(content, 0, os.SEEK_SET)  # whoever wrote it left it at its end
    order = Order.read(read_all(content))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    try:
        if not is_closed(lifeline):  # who asked may have gone while this one was being made
            enter(order.folder)
            children()  # refuse to start a tree whose end could not be guaranteed
            pid = start(order, channel)
            if channel is not None:
                os.close(channel)  # or its peer would not see that the command has closed it
            report(status, f"started {pid}")
            follow(pid, lifeline, wake, status, order.limits[0] if order.limits else None)
    except OSError as fault:
        report(status, f"failed {fault.errno or errno.EIO} {fault.filename or 'start'}")
    finally:
        left = end_tree(wake)
        if order.remove is not None and not is_removed_empty(order.remove):
            if not left:
                report(status, "removing")  # which may take longer than anybody waits
            left = remove_folder(order.remove) or left
    return left


def enter(folder: bytes) -> None:
    try:
        os.chdir(folder)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, "folder") from None


def is_closed(read_end: int) -> bool:
    """Whether nobody can write to a pipe any more."""
    poll = select.poll()
    poll.register(read_end, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def start(order: Order, channel: int | None) -> int:
    """Execute the command in a child; its process id. Raises OSError naming the step that failed.

    By posix_spawn(3), whose child borrows this process's memory until it executes: half of what a
    fork takes, most of which is copying pages. What cannot be told to it is set in this process:
    for good where that does no harm here, or else until the child has it.
    """
    forbid_core_dumps()
    if order.limits is None:
        return start_as_user(order, channel)
    limit_file_size(order.limits[1])
    score = os.open("/proc/self/oom_score_adj", os.O_RDWR)
    own = os.read(score, 16)
    os.write(score, b"%d" % min(1000, int(own) + FIRST_CHOICE))
    try:
        return start_as_user(order, channel)
    finally:
        os.write(score, own)  # everybody may lower it to what it was given; see proc(5)
        os.close(score)


def start_as_user(order: Order, channel: int | None) -> int:
    """The same. Until it is executed, the user that it drops to is this process's own, too.

    The saved user is what lets us come back; in what is executed it follows the effective one.
    """
    if order.user is None:
        return spawn(order, channel)
    uid, gid = order.user
    groups, gids, uids = os.getgroups(), os.getresgid(), os.getresuid()
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gids[2])
        os.setresuid(uid, uid, uids[2])
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, "user") from None
    try:
        return spawn(order, channel)
    finally:
        os.setresuid(*uids)
        os.setresgid(*gids)
        os.setgroups(groups)


def spawn(order: Order, channel: int | None) -> int:
    try:
        return os.posix_spawn(
            located(order.command[0], order.environment),
            order.command,
            order.environment,
            file_actions=[] if channel is None else [(os.POSIX_SPAWN_DUP2, channel, CHANNEL)],
            setsid=True,
            setsigmask=[],
            # Python ignores some, nohup one, and a shell's `&` those of the keyboard.
            setsigdef=signal.valid_signals(),
        )
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, "exec") from None


def located(program: bytes, environment: dict[bytes, bytes]) -> bytes:
    """Its path: the first of that name in the folders of the command's own PATH (execvp(3))."""
    if b"/" in program:
        return program
    folders = environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = [os.path.join(folder, program) for folder in folders]  # noqa: PTH118 - pathlib costs 10 ms here
    there = [path for path in paths if os.access(path, os.F_OK)]
    runnable = [path for path in there if os.access(path, os.X_OK)]
    return (runnable or there or [program])[0]


def forbid_core_dumps() -> None:
    """What is in a command's memory (cookies, keys) is not to end up on a disk."""
    _, highest = resource.getrlimit(resource.RLIMIT_CORE)
    # Not 0, which is for files alone: of a core that is piped to a program (core_pattern, see
    # core(5)) the kernel asks only whether the limit is 1, and then pipes nothing (a collector's
    # own is 1). A file has a page at least, so there is none either.
    if highest != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def limit_file_size(size: int) -> None:
    """At most `size` bytes in one file, or what the daemon itself may write when that is less."""
    _, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    if highest != resource.RLIM_INFINITY:
        size = min(size, highest)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def follow(pid: int, lifeline: int, wake: int, status: int, memory: int | None) -> None:
    """Pass on signals and reap the dead until the command ends or the lifeline closes.

    Or until its tree uses more than `memory` bytes.
    """
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(wake, select.POLLIN)
    next_look = 0.0 if memory is None else time.monotonic() + until_full(memory)
    while True:
        patience = None if memory is None else max(0.0, next_look - time.monotonic()) * 1000
        ready = [descriptor for descriptor, _ in poll.poll(patience)]
        if wake in ready:
            drain(wake)
            dead, _ = reap()
            if pid in dead:
                report(status, f"ended {dead[pid]}")
                return
        if lifeline in ready:
            numbers = os.read(lifeline, 64)
            if not numbers:
                return
            for number in numbers:
                os.killpg(pid, number)  # it leads its group, and is not reaped yet
        if memory is not None and (begun := time.monotonic()) >= next_look:
            used = memory_used(memory)
            if used > memory:
                report(status, f"excess {used}")
                return
            now = time.monotonic()
            next_look = now + max(until_full(memory - used), (now - begun) / LOOK_SHARE)


def end_tree(wake: int) -> str:
    """Kill and reap every descendant. What would not die within KILL_LIMIT; mostly empty.

    Killing our children makes theirs ours, so this goes down the tree one generation a round.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    deadline = time.monotonic() + KILL_LIMIT
    while time.monotonic() < deadline:
        kill(children())  # what is not allowed may pass; if not, it is reported below
        if not reap()[1]:
            return ""
        if poll.poll(LOOK_AGAIN_MS):
            drain(wake)
    return f"processes {children()} do not end"


def report(status: int, line: str) -> None:
    try:
        os.write(status, f"{line}\n".encode())
    except BrokenPipeError:
        return  # the daemon is gone; the lifeline says so too
