"""Files of secrets: those that the configuration names, and a service manager's credentials.

systemd shows credentials to the service alone, in `$CREDENTIALS_DIRECTORY` (systemd.exec(5),
LoadCredential=), by names such as `smartlinkd_cookie.sync_key`. Other names there are the owner's,
such as crews' files of variables. A secret that others can read is used, with a warning at every
start. See docs/decisions/047-files-of-secrets.md.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from smartlinkd.config.crews import LARGEST_ENVIRONMENT, MOST_VARIABLES, CrewDraft
from smartlinkd.config.problems import Problem, quoted_key
from smartlinkd.config.settings import SECRETS, SECTIONS
from smartlinkd.config.sources import Draft, Key, read_file
from smartlinkd.config.values import parse_optional_path, parse_variable, parse_variable_value
from smartlinkd.path_checks import mode_of
from smartlinkd.validation import BadValue

PREFIX = "smartlinkd_"
BESIDE = "credentials"
"""The folder beside the configuration that the unit has systemd pass on."""
ENCRYPTED = f"{BESIDE}.encrypted"
"""The folder that docs/operating.md has the owner put in its place."""
SHOWN = Path("/run/credentials")
"""Where systemd shows each service its credentials, in a folder with the service's name."""
LONGEST_SECRET = 4096  # bytes; a secret is one line

_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_END_OF_LINE = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t"  # systemd takes other alphabets' blanks for a part of the value
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\`$])')


@dataclass(frozen=True)
class Credentials:
    """A folder of secrets.

    Attributes:
        prefix: the beginning of the names of our files in it.
        seen_in: the folder in which the service sees them, with names that begin with `PREFIX`.
        is_guarded: True if nobody else can read the files, whatever their modes show.
        is_encrypted: True if the service alone can read the files.
    """

    folder: Path
    prefix: str
    seen_in: Path
    is_guarded: bool = False
    is_encrypted: bool = False

    def file_behind(self, path: Path) -> Path | None:
        """Return the file in this folder that the service sees at `path`. It need not exist.

        None if the service sees none of our files there.
        """
        name = path.name.removeprefix(PREFIX)
        if path.parent != self.seen_in or name == path.name:
            return None
        return self.folder / f"{self.prefix}{name}"

    def secret_files(self) -> dict[str, Path]:
        """Return the files that are named like a section's key, by that name, in its order.

        Raises:
            OSError: the folder cannot be read.
        """
        found = {}
        for path in sorted(path for path in self.folder.iterdir() if path.is_file()):
            name = path.name.removeprefix(self.prefix)
            if path.name.startswith(self.prefix) and name.partition(".")[0] in SECTIONS:
                found[name] = path
        return found


def of_service(environ: Mapping[str, str]) -> tuple[Credentials, ...]:
    """Return the credentials that the service manager gave to this process."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return (Credentials(Path(folder), PREFIX, Path(folder), is_guarded=True),) if folder else ()


def beside(config: Path) -> tuple[Credentials, ...]:
    """Return the credentials that a service with this configuration would be given.

    Its unit names one of the two folders, and it is not known here which one. The plain folder
    comes first.
    """
    seen_in = shown_to(config)
    folders = (
        Credentials(config.parent / BESIDE, "", seen_in),
        Credentials(config.parent / ENCRYPTED, "", seen_in, is_encrypted=True),
    )
    return tuple(each for each in folders if each.folder.is_dir())


def shown_to(config: Path) -> Path:
    """Return where the service with this configuration sees its credentials.

    Its unit has the configuration in /etc/%N.
    """
    return SHOWN / f"{config.absolute().parent.name}.service"


class SecretReader:
    """Reads files of secrets, credentials, and crews' files of variables into a draft."""

    def __init__(self, draft: Draft, given: Sequence[Credentials]) -> None:
        self._draft = draft
        self._given = given

    def read_secrets(self) -> None:
        """Set each secret's key to the content of its file or credential."""
        for each in self._given:
            if not each.is_guarded and not each.is_encrypted:
                self._warn_of_open_folder(each.folder)
        found = self._find_credentials()
        for section, key in SECRETS:
            try:
                named = parse_optional_path(self._draft.value(section, f"{key}_file"))
            except BadValue:
                continue  # the section's own check reports it
            # The ways in which it is given, by the operator's names for them.
            ways = {
                self._draft.name(section, key): bool(self._draft.value(section, key)),
                self._draft.name(section, f"{key}_file"): named is not None,
                _credential_name(section, key): (section, key) in found,
            }
            *others, name = [way for way, is_used in ways.items() if is_used] or [""]
            path = found.get((section, key), named)
            if path is None:
                continue
            if others:
                fault = f"stands beside {' and '.join(others)}"
                self._draft.problems.append(Problem(name, fault, "keep one of them"))
                continue
            self._draft.files[section, key] = name
            if self._is_encrypted(path):
                self._draft.encrypted.append(f"{section}.{key}")
                continue
            try:
                self._draft.set(section, key, self._read_secret(name, path))
            except BadValue as fault:
                self._draft.problems.append(Problem(name, fault.fault, fault.remedy))

    def read_environments(self) -> None:
        """Give each crew the variables of its `environment_file`. Problems are the crew's own."""
        for crew in self._draft.crews:
            try:
                path = parse_optional_path(crew.given.get("environment_file"))
            except BadValue:
                continue  # the crew's own check reports it
            if path is not None:
                self._read_environment(crew, path)

    def _find_credentials(self) -> dict[Key, Path]:
        """Return the files of credentials. The first folder goes before the others."""
        known = {f"{section}.{key}": (section, key) for section, key in SECRETS}
        found = {}
        for each in reversed(self._given):
            try:
                files = each.secret_files()
            except OSError as error:
                fault = f"cannot be looked into ({error.strerror})"
                remedy = "look as the user who can, which mostly is root"
                self._draft.problems.append(Problem(str(each.folder), fault, remedy))
                for at in SECRETS:  # each may be in there, so none is reported as missing
                    if not self._draft.value(*at):
                        self._draft.files[at] = _credential_name(*at)
                continue
            for name, path in files.items():
                if name in known:
                    found[known[name]] = path
                    continue
                close = difflib.get_close_matches(name, known, n=1)
                remedy = (
                    f"did you mean {close[0]}?" if close else f"the secrets are {', '.join(known)}"
                )
                section, _, key = name.partition(".")
                shown = _credential_name(section, quoted_key(key))
                self._draft.problems.append(Problem(shown, "is the name of no secret", remedy))
        return found

    def _read_secret(self, name: str, path: Path) -> str:
        content, mode = read_file(path, LONGEST_SECRET)
        if not content.strip():
            raise BadValue("has an empty file", "write the secret into it, one line")
        self._warn_if_open(name, path, mode)
        return content.strip()

    def _read_environment(self, crew: CrewDraft, path: Path) -> None:
        name = crew.key("environment_file")
        try:
            source = self._source_of(path)
            if self._is_encrypted(source):
                return
            content, mode = read_file(source, LARGEST_ENVIRONMENT)
            crew.variables = parse_variables(content)
        except BadValue as fault:
            crew.add_problem("environment_file", fault.fault, fault.remedy)
            return
        self._warn_if_open(name, source, mode)

    def _source_of(self, path: Path) -> Path:
        """Return the file that the service sees at a path.

        Raises:
            BadValue: the path is that of a credential that is not there. A file that somebody made
                at that path would be gone after the next start.
        """
        candidates = [file for each in self._given if (file := each.file_behind(path))]
        for file in candidates:
            try:
                if mode_of(file) is not None:
                    return file
            except OSError:
                return file  # opening it reports why
        if candidates:
            name = path.name.removeprefix(PREFIX)
            remedy = f"put {name} among the credentials, and restart: a reload sees no new ones"
            raise BadValue("names a credential that is not there", remedy)
        return path

    def _is_encrypted(self, path: Path) -> bool:
        return any(each.is_encrypted and path.parent == each.folder for each in self._given)

    def _warn_if_open(self, name: str, path: Path, mode: int) -> None:
        holder = next((each for each in self._given if path.is_relative_to(each.folder)), None)
        # systemd gives a service access by an ACL, whose mask shows as the group's permissions.
        is_guarded = path.is_relative_to(SHOWN) or (holder is not None and holder.is_guarded)
        if mode & _OPEN_TO_OTHERS and not is_guarded:
            remedy = f"chmod 600 {path}"
            if holder is None:
                # The service's user could not read a file that is root's alone.
                remedy += " if the daemon's user owns it, else make it a credential"
            self._add_open_warning(name, mode, remedy)

    def _warn_of_open_folder(self, folder: Path) -> None:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & _OPEN_TO_OTHERS:
            self._add_open_warning(str(folder), mode, f"chmod 700 {folder}")

    def _add_open_warning(self, name: str, mode: int, remedy: str) -> None:
        fault = f"is open to other users (mode {mode:04o})"
        self._draft.warnings.append(Problem(name, fault, remedy))


def parse_variables(content: str) -> dict[str, SecretStr]:
    """Return the variables of a file of `NAME=VALUE` lines, as systemd would read them.

    See docs/decisions/047-files-of-secrets.md.

    Raises:
        BadValue: a line is wrong, or programs read it differently. The error has the line's number,
            and no more of it than the variable's name.
    """
    found: dict[str, SecretStr] = {}
    for number, line in enumerate(_END_OF_LINE.split(content), 1):
        stripped = line.strip(_BLANKS)
        if not stripped:
            continue
        if stripped[0] in "#;":
            if line.endswith("\\"):  # up to systemd 253 the next line belongs to the comment
                fault = f"line {number} is a comment that ends in a backslash"
                raise BadValue(fault, "take the backslash away")
            continue
        try:
            name, value = _parse_assignment(stripped)
        except BadValue as fault:
            raise BadValue(f"line {number} {fault.fault}", fault.remedy) from None
        if name in found:
            raise BadValue(f"line {number} sets {name} again", "keep one of the two lines")
        found[name] = value
    if len(found) > MOST_VARIABLES:
        raise BadValue(f"sets more than {MOST_VARIABLES} variables", "is it the right file?")
    return found


def _credential_name(section: str, key: str) -> str:
    """Return the operator's name for the credential of a key."""
    return f"credential {section}.{key}"


def _parse_assignment(line: str) -> tuple[str, SecretStr]:
    left, equals, right = line.partition("=")
    if not equals:
        raise BadValue("is no NAME=VALUE", "write it so, or put a # before it")
    if left.startswith("export "):
        raise BadValue("begins with `export`", "take that word away")
    try:
        name = parse_variable(left.rstrip(_BLANKS))
    except BadValue as fault:
        raise BadValue(f"sets what {fault.fault}", fault.remedy) from None
    try:
        return name, parse_variable_value(_unquote(right.lstrip(_BLANKS)))
    except BadValue as fault:
        raise BadValue(f"gives {name} a value that {fault.fault}", fault.remedy) from None


def _unquote(value: str) -> str:
    if value[:1] not in ("'", '"'):
        if "\\" in value:
            fault = "has a backslash outside of quotes"
            raise BadValue(fault, "put the whole value into single quotes")
        return value
    is_single = value[0] == "'"
    quoted = (_SINGLE_QUOTED if is_single else _DOUBLE_QUOTED).fullmatch(value)
    if not quoted:
        raise BadValue("does not end where its quotes do", "close them at the end of the line")
    return quoted[1] if is_single else _ESCAPED.sub(r"\1", quoted[1])
