"""The state directory, which one daemon uses at a time (`lock`), and the private files in it.

A file is read and replaced as a whole, so that a crash or a power failure leaves the old content or
the new one. Its mode is 0600; a file that other users may open is refused. A secret is a file of 64
hexadecimal digits, made at the first start. All functions block; actors call them on a thread.
"What is on disk" in docs/architecture.md lists the files and the modules that write them.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from pydantic import SecretBytes, SecretStr, ValidationError

from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.validation import BadValue

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOCK_NAME = "lock"

_OTHERS: Final = 0o077
_MAX_SECRET_FILE: Final = 1024
"""Bytes that are read of a secret's file. It has 65."""
_SECRET = re.compile(r"[0-9a-fA-F]{64}")


class StateUnusable(Exception):  # noqa: N818 - it names what is the matter
    """The state directory or a file in it cannot be used. The text says why and what to do."""


class NotSaved(Exception):  # noqa: N818 - said of the change, which did not happen
    """A file could not be written. The old content is untouched."""


@contextmanager
def claim(directory: Path) -> Iterator[None]:
    """Lock the directory for the block (flock(2)); make it if it is missing.

    Raises:
        StateUnusable: it cannot be used, or another daemon uses it.
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
            "make it writable for the daemon's user (in a service: ReadWritePaths=), or name "
            "another one"
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
    """Return why `directory` cannot be the state directory, and the remedy.

    None if this user sees no fault, or the directory does not exist yet.
    """
    try:
        mode = directory.stat().st_mode
    except OSError:
        return None
    if not stat.S_ISDIR(mode):
        return f"{directory} is no directory", "name another one"
    if mode & stat.S_IWOTH:  # another user could put a secret or a control socket there
        remedy = f"run `chmod 700 {directory}`, or name one that is the daemon's alone"
        return f"every user can write to {directory}", remedy
    return None


def fault_of_owner(directory: Path) -> tuple[str, str] | None:
    """Return why an existing directory's owner rules it out for this user, and the remedy, or None.

    Its owner could have put a known secret there. A directory of root's is accepted: the folder of
    a volume may be root's and open to the daemon's group. This check is apart from `fault_of`,
    because root also inspects directories of daemons that run as other users.

    Raises:
        OSError: the directory cannot be looked at.
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


def read_private(path: Path, *, most: int) -> bytes | None:
    """Return the first `most` bytes of a private file; None if it does not exist.

    Raises:
        StateUnusable: it cannot be read, or other users may open it.
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


def load_model(path: Path, parse: Callable[[bytes], T], *, most: int, loss: str) -> T | None:
    """Return what a private file holds; None if it does not exist.

    Args:
        parse: raises pydantic's `ValidationError` for other content.
        most: bytes that are read.
        loss: the effect of deleting the file, such as "ends every session".

    Raises:
        StateUnusable: the file is damaged, cannot be read, or other users may open it.
    """
    content = read_private(path, most=most)
    try:
        return None if content is None else parse(content)
    except ValidationError:
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
            f"or delete it, which {loss}"
        ) from None


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of `path` atomically, with mode 0600.

    Raises:
        NotSaved: the old file is still in place.
        OSError: the new file is in place, but may not be on the disk. The caller has to read the
            file again before it goes on.
    """
    fresh = path.with_name(f".{path.name}.new")  # a fixed name: crashes leave one file at most
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
    """Return True if the error means a full disk or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def saving() -> Iterator[None]:
    """Refuse the caller if the block cannot save.

    An `OSError` passes through: memory and disk may differ then, so the actor has to end, and its
    next instance reads the file again.

    Raises:
        Unavailable: the block raised `NotSaved`, which is logged.
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
    """Return the 32 bytes that `path` holds. Make the file if it does not exist.

    Args:
        name: for texts, such as "the signing secret".
        loss: the effect of a new secret, such as "ends every session".

    Raises:
        StateUnusable: the file cannot be read, holds something else, or others may open it.
        NotSaved, OSError: a new file could not be written, as in `replace_file`.
    """
    content = read_private(path, most=_MAX_SECRET_FILE)
    if content is None:
        content = secrets.token_hex(32).encode()
        replace_file(path, content + b"\n")
        logger.info("made %s %s", name, path)
    try:
        return parse_secret(SecretStr(content.decode("ascii").strip()))
    except ValueError:
        raise StateUnusable(
            f"{path} must hold 64 hexadecimal digits: restore it from a backup, or delete it, "
            f"which makes a new one and {loss}"
        ) from None


def parse_secret(text: SecretStr) -> SecretBytes:
    """Return the bytes of 64 hexadecimal digits. Raises `BadValue`."""
    digits = text.get_secret_value()
    if not _SECRET.fullmatch(digits):
        raise BadValue("must be 64 hexadecimal digits", "make one with: openssl rand -hex 32")
    return SecretBytes(bytes.fromhex(digits))
