"""The page's files as one bundle, whose addresses change with its content.

All but `index.html` and `STABLE` are below a folder that is called by a digest of them and of
`index.html`. So browsers keep them for good, and never mix those of two versions.
"""

from __future__ import annotations

import hashlib
import html
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

from smartlinkd.web import libraries
from smartlinkd.web.assets import Asset

PAGE: Final = Path(__file__).parent / "page"
STABLE: Final = (
    "manifest.webmanifest",
    "icon.svg",
    "icon-192.png",
    "icon-512.png",
    "icon-maskable-512.png",
)
"""Files with an address that stays, since installed pages name them."""
_INDEX: Final = "index.html"
_ENTRY: Final = "main.js"
_IMPORTED: Final = re.compile(r'\b(?:import|export)\b(?:[\w\s{},*$]*?from)?\s*"([^"]+)"')
_VERSION_LENGTH: Final = 12


@dataclass(frozen=True)
class Bundle:
    """Everything that is served below the page's prefix.

    Args:
        version: the folder that `files` are in.
        index: the page itself.
        import_map: its inline script.
        files: by their paths in that folder.
        stable: by their paths beside it.
    """

    version: str
    index: Asset
    import_map: str
    files: Mapping[str, Asset]
    stable: Mapping[str, Asset]


@dataclass(frozen=True)
class Site:
    """The marketplace as the page needs to know it.

    Args:
        currency: an ISO 4217 code.
        portal_url: the affiliate portal's origin.
        shop_url: the shop's origin.
        picture_url: an address at the host that product pictures come from.
        needs_cookie: False where links are made without the account's cookie.
    """

    currency: str
    portal_url: str
    shop_url: str
    picture_url: str
    needs_cookie: bool


@cache
def read_bundle(site: Site) -> Bundle:
    """Read the files, once for all apps: a reload of the configuration makes new ones."""
    modules: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    for file in libraries.read_list().files(used_by="app"):
        if not file.path.endswith((".mjs", ".js", ".css")):
            continue
        path = f"vendor/{file.path}"
        contents[path] = (libraries.FOLDER / file.path).read_bytes()
        if file.module is not None:
            modules[file.module] = path
    for place in sorted(PAGE.rglob("*")):
        if place.is_file():
            contents[place.relative_to(PAGE).as_posix()] = place.read_bytes()
    template = Template(contents.pop(_INDEX).decode())
    stable = {name: Asset(name, contents.pop(name)) for name in STABLE}
    version = _digest({**contents, _INDEX: template.template.encode()})
    import_map = json.dumps({"imports": {name: f"./{version}/{modules[name]}" for name in modules}})
    preloads = [
        f'<link rel="modulepreload" href="{version}/{path}">'
        for path in _static_imports(_ENTRY, contents, modules)
    ]
    index = template.substitute(
        version=version,
        import_map=import_map,
        preloads="\n".join(preloads),
        entry=_ENTRY,
        currency=html.escape(site.currency),
        portal=html.escape(site.portal_url),
        shop=html.escape(site.shop_url),
        needs_cookie="yes" if site.needs_cookie else "no",
    )
    return Bundle(
        version=version,
        index=Asset(_INDEX, index.encode()),
        import_map=import_map,
        files={path: Asset(path, content) for path, content in contents.items()},
        stable=stable,
    )


def _digest(contents: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for path, content in sorted(contents.items()):
        whole.update(f"{path} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()[:_VERSION_LENGTH]


def _static_imports(
    entry: str, contents: Mapping[str, bytes], modules: Mapping[str, str]
) -> Iterator[str]:
    """Return the modules that the browser needs before it runs `entry`, each once."""
    seen, wanted = {entry}, [entry]
    while wanted:
        path = wanted.pop(0)
        for name in _IMPORTED.findall(contents[path].decode()):
            relative = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            found = relative if name.startswith(".") else modules[name]
            if found not in seen:
                seen.add(found)
                wanted.append(found)
                yield found
