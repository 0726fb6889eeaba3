"""Secrets that a service manager hands over: a folder of files, each named after its key.

systemd reads files that only root can, or decrypts them, and shows them to the service alone, in
the folder that `$CREDENTIALS_DIRECTORY` names (systemd.exec(5), LoadCredential=). Our unit has it
pass on a whole folder, so there every file's name begins with `smartlinkd_`; what follows is the
secret's key, as in `smartlinkd_cookie.sync_key`. So there is nothing to configure: a secret is
given by putting a file there.

A command that judges a configuration sees the folders beside it, of which the unit has one passed
on. What is encrypted there only the service is shown: a stand-in of the same form takes its place,
so that all else can be judged.

Nothing else may give a secret that a credential gives: of two passwords one would silently be the
wrong one. A name that reads like a key and is none is a problem, too; other names are the owner's,
such as those of crews' environment files.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config.draft import Draft, secret_keys
from smartlinkd.config.problems import Problem, quoted_key
from smartlinkd.config.settings import SECTIONS

PREFIX = "smartlinkd_"
BESIDE = "credentials"
"""The folder beside the configuration that the unit has systemd pass on."""
ENCRYPTED = f"{BESIDE}.encrypted"
"""The one beside it that docs/operating.md has the owner put in its place."""
SHOWN = Path("/run/credentials")
"""Where systemd shows each service its own, in a folder with the service's name."""


@dataclass(frozen=True)
class Credentials:
    """A folder of secrets; `prefix` is what all names of ours begin with in it.

    `seen_in` is the folder in which the service sees them, with names that begin with `PREFIX`.
    `guarded` says that nobody else can read what is there, whatever the files' modes show, and
    `encrypted` that nobody can at all.
    """

    folder: Path
    prefix: str
    seen_in: Path
    guarded: bool = False
    encrypted: bool = False

    def guards(self, path: Path) -> bool:
        """Whether this file is one of those that are guarded."""
        return self.guarded and path.is_relative_to(self.folder)

    def behind(self, path: Path) -> Path | None:
        """The file here, be it there or not, that the service sees at `path`; None when that is not
        a place for one of ours."""
        name = path.name.removeprefix(PREFIX)
        if path.parent != self.seen_in or name == path.name:
            return None
        return self.folder / f"{self.prefix}{name}"

    def in_use(self) -> bool:
        """Whether anything is there; that it cannot be looked into, `find` tells."""
        try:
            return any(self.folder.iterdir())
        except OSError:
            return False

    def find(self, draft: Draft) -> dict[tuple[str, str], Path]:
        """The files of secrets by section and key. Adds a problem for each that is misnamed."""
        try:
            names = sorted(path.name for path in self.folder.iterdir() if path.is_file())
        except OSError as error:
            fault = f"cannot be looked into ({error.strerror})"
            remedy = "look as the user who can, which mostly is root"
            draft.problems.append(Problem(str(self.folder), fault, remedy))
            for place in secret_keys():  # any may be in there, so none is told to be missing
                if not draft.value(*place):
                    draft.files[place] = called(*place)
            return {}
        known = {f"{section}.{key}": (section, key) for section, key in secret_keys()}
        found = {}
        for name in names:
            own = name.removeprefix(self.prefix)
            if not name.startswith(self.prefix) or own.partition(".")[0] not in SECTIONS:
                continue
            if own in known:
                found[known[own]] = self.folder / name
            else:
                draft.problems.append(_misnamed(own, list(known)))
        return found


def of_service(environ: Mapping[str, str]) -> tuple[Credentials, ...]:
    """Those that the service manager gave to this process."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return (Credentials(Path(folder), PREFIX, Path(folder), guarded=True),) if folder else ()


def beside(config: Path) -> tuple[Credentials, ...]:
    """Those that it would give to a service with this configuration.

    Of a secret that is in both folders the plain one is looked at. Which of them the unit names is
    not known here: it is one.
    """
    seen_in = shown_to(config)
    there = (
        Credentials(config.parent / BESIDE, "", seen_in),
        Credentials(config.parent / ENCRYPTED, "", seen_in, encrypted=True),
    )
    return tuple(each for each in there if each.folder.is_dir())


def shown_to(config: Path) -> Path:
    """Where the service of this configuration, in /etc/%N by its unit, sees what it is given."""
    return SHOWN / f"{config.absolute().parent.name}.service"


def stand_in(section: str, key: str) -> str:
    """A value that a secret could have, and hardly has."""
    match section, key:
        case "auth", "password_hash":
            return hash_password(secrets.token_hex())
        case "notify", "url":
            return "https://stand-in.invalid/"
        case _:
            return secrets.token_hex(32)


def called(section: str, key: str) -> str:
    """What the operator calls the credential for a key."""
    return f"credential {section}.{key}"


def _misnamed(name: str, known: list[str]) -> Problem:
    close = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"the secrets are {', '.join(known)}"
    section, _, key = name.partition(".")
    return Problem(called(section, quoted_key(key)), "is the name of no secret", remedy)
