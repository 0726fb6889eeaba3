"""The state directory: made if it is missing, used by one daemon at a time; and the files in it.

A file there is read as a whole and replaced as a whole, so that a crash, or a power failure, leaves
the old content or the new one and never a mixture. Each is the daemon's user's alone, and one that
others may open is refused rather than trusted. A secret is such a file with 64 hexadecimal digits
in it, made at the first start.

All functions here block for as long as the disk takes; actors call them in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretBytes, SecretStr

from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"

_OTHERS: Final = 0o077
_MAX_SECRET_FILE: Final = 1024
"""Bytes read of a secret's file: it has 65, and one of many blanks is not a secret's."""
_SECRET = re.compile(r"[0-9a-fA-F]{64}")


class StateUnusable(Exception):  # noqa: N818 - it names what is the matter
    """The state directory, or a file in it, cannot be used; the text says why and what to do."""


class NotSaved(Exception):  # noqa: N818 - said of the change, which did not happen
    """A file could not be written. The one that was there is untouched."""


@contextmanager
def claim(directory: Path) -> Iterator[None]:
    """Hold the directory until the block ends. The kernel lets go of it when the process dies.

    Raises `StateUnusable`.
    """
    found = fault_of(directory)
    if found is not None:
        raise StateUnusable(f"state.directory: {'; '.join(found)}")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = fault_of_owner(directory)
        if found is not None:
            raise StateUnusable(f"state.directory: {'; '.join(found)}")
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnusable(
            f"state.directory: {directory} cannot be used ({error.strerror}); "
            "make it writable for the daemon's user, or name another one"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateUnusable(
            f"state.directory: another daemon is using {directory}; stop it, or give this one a "
            "directory of its own"
        ) from None
    else:
        yield
    finally:
        os.close(descriptor)


def fault_of(directory: Path) -> tuple[str, str] | None:
    """Why what is there cannot be the state directory, as far as this user can see, and the remedy;
    None when nothing speaks against it, or nothing is there yet."""
    if _is_read_only(directory):
        remedy = "name another one, or let it be written to (in a service: ReadWritePaths=)"
        return f"{directory} is on a file system that is read-only here", remedy
    try:
        mode = directory.stat().st_mode
    except OSError:
        return None
    if not stat.S_ISDIR(mode):
        return f"{directory} is no directory", "name another one"
    if mode & stat.S_IWOTH:  # a secret of theirs in the place of ours, or a control socket
        remedy = f"run `chmod 700 {directory}`, or name one that is the daemon's alone"
        return f"every user can write to {directory}", remedy
    return None


def fault_of_owner(directory: Path) -> tuple[str, str] | None:
    """Why a directory that is there is not for a daemon of this user's, and the remedy, or None.

    Whose it is could have put a secret there that he knows. Root could, too, but need not: where a
    volume's folder is root's and is open to the daemon's group, it is used.

    Not part of `fault_of`: root also looks at directories of daemons that run as others. Raises
    `OSError`.
    """
    owner, us = directory.stat().st_uid, os.geteuid()
    if owner in (us, 0):
        return None
    theirs, ours = _user(owner), _user(us)
    fault = f"{directory} belongs to {theirs}, who may have put secrets there, and this is {ours}"
    remedy = (
        f"start the daemon as {theirs}, or if all that is in it is the daemon's own, run "
        f"`chown -R {ours} {directory}`"
    )
    return fault, remedy


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # of a container, or of a service that does not run
        return str(uid)


def _is_read_only(directory: Path) -> bool:
    """For everybody: whether this user may write to it is another matter, and that of who asks.
    False where that cannot be seen."""
    for place in (directory, *directory.absolute().parents):
        try:
            return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
        except FileNotFoundError:
            continue  # it would be made, in the next one
        except OSError:
            break
    return False


def read_private(path: Path, *, most: int) -> bytes | None:
    """The content of a file that is only ours, cut at `most` bytes; None when there is none.

    Raises `StateUnusable`.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(most)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnusable(
            f"{path} cannot be read: {error.strerror}; let the daemon's user read it"
        ) from error
    if mode & _OTHERS:
        raise StateUnusable(
            f"{path} is open to other users: run `chmod 600 {path}`, and if one of them may have "
            "read it, delete it and set up again"
        )
    return content


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` a new content, mode 0600, so that a reader or a crash sees the old or the new.

    Raises `NotSaved` while the old file is still in place. An `OSError` is worse: the new file is
    in place, but the disk may not have it; the caller has to read it again before it goes on.
    """
    fresh = path.with_name(f".{path.name}.new")  # one name, so that crashes leave one at most
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise NotSaved(f"{path} could not be written: {error.strerror}") from error
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def disk_is_full(error: BaseException | None) -> bool:
    """Whether an error says that there is no room: on the disk, or for this user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def saving() -> Iterator[None]:
    """Save in the body, for somebody who waits. `NotSaved` is logged, and leaves as `Unavailable`.

    An `OSError` is for nobody to catch: with it the state that is in memory may be another than
    the one on the disk, so the actor has to end and its next instance to read again.
    """
    try:
        yield
    except NotSaved as error:
        about = LogEvent.DISK_FULL() if disk_is_full(error.__cause__) else None
        logger.error("%s", error, extra=about)  # noqa: TRY400 - the text is the whole of it
        raise Unavailable(
            "the daemon could not write to its state directory, so nothing was changed; "
            "see its log, make room, and try again",
            retry_after=30,
        ) from error


def load_secret(path: Path, *, name: str, loss: str) -> SecretBytes:
    """The 32 bytes that `path` holds, made when there is no such file.

    `name` is what to call it ("the signing secret"), `loss` what a new one does ("ends every
    session"). Raises `StateUnusable`, or `NotSaved` when it was to be made.
    """
    content = read_private(path, most=_MAX_SECRET_FILE)
    if content is None:
        content = secrets.token_hex(32).encode()
        replace_file(path, content + b"\n")
        logger.info("made %s %s", name, path)
    try:
        return parse_secret(SecretStr(content.decode("ascii").strip()), name=name)
    except ValueError:
        raise StateUnusable(
            f"{path} must hold 64 hexadecimal digits: restore it from a backup, or delete it, "
            f"which makes a new one and {loss}"
        ) from None


def parse_secret(text: SecretStr, *, name: str) -> SecretBytes:
    """The bytes of 64 hexadecimal digits. Raises `ValueError` without repeating them."""
    digits = text.get_secret_value()
    if not _SECRET.fullmatch(digits):
        raise ValueError(
            f"{name} must be 64 hexadecimal digits; make one with: openssl rand -hex 32"
        )
    return SecretBytes(bytes.fromhex(digits))
