"""The extension's files: whole, in two languages, and released with the program."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

from smartlinkd import __version__
from smartlinkd.web.extension import read_extension

FOLDER = Path(__file__).parents[2] / "extension"


def files() -> zipfile.ZipFile:
    content = read_extension()
    assert content is not None
    return zipfile.ZipFile(io.BytesIO(content))


def test_zip_has_every_file_of_the_folder() -> None:
    wanted = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert set(files().namelist()) == wanted


def test_manifest_names_files_that_are_there() -> None:
    manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    named = [
        manifest["background"]["service_worker"],
        manifest["action"]["default_popup"],
        *manifest["icons"].values(),
    ]
    assert manifest["background"]["scripts"] == [manifest["background"]["service_worker"]]
    assert set(named) <= set(files().namelist())


def test_both_languages_have_every_text_that_is_used() -> None:
    texts = {
        language: json.loads((FOLDER / f"_locales/{language}/messages.json").read_text("utf-8"))
        for language in ("en", "vi")
    }
    assert texts["en"].keys() == texts["vi"].keys()
    code = "\n".join(path.read_text("utf-8") for path in FOLDER.glob("*.*") if path.is_file())
    used = set(re.findall(r'(?:\btext|\bnote|PairingError|getMessage)\("(\w+)"', code))
    used |= set(re.findall(r'data-text="(\w+)"', code)) | set(re.findall(r"__MSG_(\w+)__", code))
    badges = re.search(r"const BADGES = \{(.*?)\};", code, re.DOTALL)
    assert badges is not None
    used |= {f"state_{kind}" for kind in re.findall(r"^  (\w+):", badges[1], re.MULTILINE)}
    assert used <= texts["en"].keys()
    assert len(used) > 20


def test_extension_has_the_version_of_the_program() -> None:
    assert json.loads((FOLDER / "manifest.json").read_text())["version"] == __version__
