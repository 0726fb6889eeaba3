"""The page's libraries: vendored from npm, unchanged, and listed in `vendor/vendor.json`.

`python -m smartlinkd.web.libraries` (`./run vendor`) fetches the listed versions with npm,
copies their files and writes their digests. To move to another version, edit it in the list first.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel

FOLDER: Final = Path(__file__).parent / "vendor"
LIST: Final = FOLDER / "vendor.json"


class File(BaseModel):
    """One file of a library.

    Args:
        path: where it lies below `vendor/`.
        packed: where it lies in the package.
        module: the bare name that scripts import it by; None for what is no module.
        sha512: of its content, in hexadecimal.
    """

    path: str
    packed: str
    module: str | None = None
    sha512: str = ""


class Library(BaseModel):
    """One npm package at one version, for one of the pages. `licence` is an SPDX identifier."""

    name: str
    version: str
    licence: str
    used_by: Literal["app", "docs"] = "app"
    files: list[File]


class Vendored(BaseModel):
    """The content of `vendor.json`."""

    libraries: list[Library]

    def files(self, *, used_by: Literal["app", "docs"]) -> Iterator[File]:
        """Return the files of the libraries of one page."""
        for library in self.libraries:
            if library.used_by == used_by:
                yield from library.files


def read_list() -> Vendored:
    return Vendored.model_validate_json(LIST.read_bytes())


def digest(content: bytes) -> str:
    """Return the SHA-512 digest of a file's content, in hexadecimal."""
    return hashlib.sha512(content).hexdigest()


def renew() -> None:
    """Fetch every library of the list again, and write its files and digests.

    Raises:
        subprocess.CalledProcessError: npm could not fetch a package.
        ValueError: a package names another licence than the list.
        FileNotFoundError: there is no npm, or a package lacks a file of the list.
    """
    vendored = read_list()
    wanted = [f"{library.name}@{library.version}" for library in vendored.libraries]
    with tempfile.TemporaryDirectory() as folder:
        # npm checks the packages against the integrity that its registry tells.
        command = [shutil.which("npm") or "npm", "install", "--ignore-scripts", "--prefix", folder]
        arguments = [*command, *wanted]
        subprocess.run(arguments, check=True, capture_output=True)  # noqa: S603 - our own list
        for library in vendored.libraries:
            _copy(library, Path(folder, "node_modules", library.name))
    text = vendored.model_dump_json(indent=2, exclude_none=True)
    LIST.write_text(text + "\n", encoding="utf-8")


def _copy(library: Library, package: Path) -> None:
    licence = json.loads((package / "package.json").read_bytes())["license"]
    if licence != library.licence:
        raise ValueError(f"{library.name}: its licence is {licence}; look at it first")
    for file in library.files:
        content = (package / file.packed).read_bytes()
        place = FOLDER / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        file.sha512 = digest(content)
    print(f"{library.name}@{library.version}: {len(library.files)} files")


if __name__ == "__main__":
    try:
        renew()
    except subprocess.CalledProcessError as failure:
        sys.exit(f"npm failed: {failure.stderr.decode()}")
