"""The extension's files: whole, the same at each start, and in two languages."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

from smartlinkd.http_server import GuardedQuart
from smartlinkd.web import extension
from smartlinkd.web.extension import NAMES, read_extension

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


async def test_zips_are_open_to_everybody() -> None:
    app = GuardedQuart()
    extension.register(app)
    for name in NAMES:
        answer = await app.test_client().get(f"/extension/{name}")
        assert (answer.status_code, await answer.get_data()) == (200, read_extension())
        assert answer.headers["Content-Type"] == "application/zip"
    assert (await app.test_client().get("/extension/other.zip")).status_code == 404
