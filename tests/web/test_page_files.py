"""Rules for the page's sources: texts in catalogues alone, no markup out of text, no other
server, and libraries that are unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smartlinkd.web import libraries
from smartlinkd.web.bundle import PAGE

SCRIPTS = sorted(PAGE.rglob("*.js"))
COMPONENTS = [script for script in SCRIPTS if script.parent.name != "i18n"]
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(")
OTHER_SERVER = re.compile(r"https?://[a-z0-9]|[\"'(]//[^ ]")
USED = re.compile(
    r"""\bt\(\s*(?:"([\w.:-]+)"|`([^`]+)`|[^"`)]*\?\s*"([\w.-]+)"\s*:\s*"([\w.-]+)")"""
)
PLURAL = re.compile(r"\.(one|other)$")


def catalogue(language: str) -> dict[str, str]:
    text = (PAGE / "i18n" / f"{language}.js").read_text("utf-8")
    body = text[text.index("{") :].rstrip().removesuffix(";")
    found: dict[str, str] = json.loads(re.sub(r",\s*}$", "}", body))
    return found


def name(script: Path) -> str:
    return script.relative_to(PAGE).as_posix()


def templates(text: str) -> list[str]:
    """The text of each `html` template, nested ones by themselves, without their expressions."""
    found: list[str] = []

    def read(start: int) -> int:
        at, literal = start, ""
        while text[at] != "`":
            if text.startswith("${", at):
                at = skip(at + 2)
                literal += "\0"
            else:
                literal += text[at]
                at += 1
        found.append(literal)
        return at + 1

    def skip(at: int) -> int:
        depth = 1
        while depth:
            if text.startswith("html`", at):
                at = read(at + 5)
                continue
            if text[at] in "\"'`":
                at = text.index(text[at], at + 1)
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        return at

    at = text.find("html`")
    while at >= 0:
        at = text.find("html`", read(at + 5))
    return found


def test_catalogues_have_the_same_keys_and_values() -> None:
    english, vietnamese = catalogue("en"), catalogue("vi")
    assert list(english) == list(vietnamese)
    for key, text in english.items():
        assert text.strip(), key
        named = set(re.findall(r"\{(\w+)\}", text))
        if not key.endswith(".one"):
            assert named == set(re.findall(r"\{(\w+)\}", vietnamese[key])), key


def test_every_text_that_is_used_is_in_the_catalogue() -> None:
    keys = {PLURAL.sub("", key) for key in catalogue("en")}
    missing = []
    for script in COMPONENTS:
        for plain, template, *either in USED.findall(script.read_text("utf-8")):
            missing += [key for key in (plain, *either) if key and key not in keys]
            pattern = re.compile(re.sub(r"\\\$\\\{[^}]+\\\}", ".+", re.escape(template)))
            if template and not any(pattern.fullmatch(key) for key in keys):
                missing.append(template)
    assert not missing


def test_every_text_of_the_catalogue_is_used() -> None:
    sources = "".join(script.read_text("utf-8") for script in COMPONENTS)
    begins = set(re.findall(r"`([\w.]+\.)\$\{", sources)) | {"failCode."}
    ends = tuple(re.findall(r"`\w+\.\$\{[^}]+\}(\.\w+)`", sources))
    unused = [
        key
        for each in catalogue("en")
        if f'"{(key := PLURAL.sub("", each))}"' not in sources
        and not key.startswith(tuple(begins))
        and not key.endswith(ends)
    ]
    assert not unused


@pytest.mark.parametrize("script", COMPONENTS, ids=name)
def test_component_has_no_text_of_its_own(script: Path) -> None:
    for template in templates(script.read_text("utf-8")):
        outside = re.sub(r"<[^>]*>", " ", template.replace("=>", ""))
        words = set(re.findall(r"[^\W\d_]{2,}", outside)) - {"smartlinkd"}
        assert not words, template


@pytest.mark.parametrize("script", COMPONENTS, ids=name)
def test_script_makes_no_markup_or_code_and_names_no_other_server(script: Path) -> None:
    text = script.read_text("utf-8")
    assert not MARKUP.search(text)
    assert not OTHER_SERVER.search(text)


@pytest.mark.parametrize("script", COMPONENTS, ids=name)
def test_component_is_of_a_size_to_be_read_at_once(script: Path) -> None:
    assert len(script.read_text("utf-8").splitlines()) <= 160


def test_manifest_takes_shared_text_by_get() -> None:
    manifest = json.loads((PAGE / "manifest.webmanifest").read_text("utf-8"))
    share = manifest["share_target"]
    assert share["method"] == "GET"
    assert set(share["params"]) == {"title", "text", "url"}
    for icon in manifest["icons"]:
        assert (PAGE / icon["src"]).is_file()


def test_libraries_are_as_they_were_fetched() -> None:
    listed = libraries.read_list()
    fetched = [*listed.files(used_by="app"), *listed.files(used_by="docs")]
    for file in fetched:
        content = (libraries.FOLDER / file.path).read_bytes()
        assert libraries.digest(content) == file.sha512, file.path
    names = {path.relative_to(libraries.FOLDER).as_posix() for path in libraries.FOLDER.rglob("*")}
    files = {name for name in names if (libraries.FOLDER / name).is_file()}
    assert files == {file.path for file in fetched} | {libraries.LIST.name}


def test_every_library_comes_with_its_licence() -> None:
    for library in libraries.read_list().libraries:
        assert library.licence in ("MIT", "Apache-2.0")
        assert any("LICENSE" in file.path for file in library.files), library.name
