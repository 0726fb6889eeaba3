"""Keep other processes of the same user from looking into this one.

The problem: crews run as the daemon's own user. To the kernel such a process is as good as the
daemon itself: it may read all of the daemon's memory (/proc/PID/mem, ptrace, process_vm_readv), its
environment, where a configuration may keep secrets, and take its open files (/proc/PID/fd,
pidfd_getfd). In that memory are the affiliate cookie, which is on no disk, and every key. A crew is
trusted not to be an attacker, but it runs prompts from anywhere, and a model that is talked into
`cat /proc/*/environ` is no unlikely one.

The choice: PR_SET_DUMPABLE 0, see prctl(2) and ptrace(2). Then all of that is for root alone; what
is open to everybody (the command line, status, memory figures) stays so. It also means that there
are no core dumps of the daemon, whatever their limit and whoever collects them: a core is its
memory on a disk. The price: a debugger or profiler for the running daemon has to be root's.

Every process begins dumpable, so between its start and this call one is open: but nothing of the
daemon's runs yet. A program that it starts begins dumpable again, which the kernel does at execve;
Chromium's check of its sandbox and a guardian's look at the memory of its tree rely on that. The
daemon's own /proc/self stays open to itself, all but `environ` and a few more that belong to root
now.

What this does not do: files are the user's as before. A crew can read the state directory, and ask
the control socket, as the owner's shell does. Nothing helps at all when the daemon is run as root,
who may read everything.

Rejected: another user for crews, which only root can change to, and a service should not be root's.
"""

from __future__ import annotations

from typing import Final

from smartlinkd.processes.children import prctl

PR_SET_DUMPABLE: Final = 4


def keep_private() -> None:
    """From here on only root can look into this process, and it leaves no core dumps.

    Raises `OSError` where the kernel does not let it, as a filter for system calls may.
    """
    prctl(PR_SET_DUMPABLE, 0)
