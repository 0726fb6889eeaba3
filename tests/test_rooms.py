"""A module is a concept: a small module with a single importer is part of that importer."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1] / "daemon"
SMALL = 150
"""Lines. A larger module may stand alone."""

EXCEPTIONS = {
    "api.crews.mapping": "pure; bodies to and from values of the store",
    "api.crews.sse": "a protocol of its own, with tests of its own",
    "api.static": "serves files; app.py has the order of handlers",
    "commands.completion": "a command, and what a shell asks for while a person types",
    "commands.demo_history": "the demo's older links, which no other command needs",
    "commands.login": "two commands; running.py asks for the password as it does",
    "conversion.product_data": "what a refusal of product data stops, with tests of its own",
    "crews.catalog.project_formats": "pure, with tests of its own",
    "crews.deal_post.llm": "the only network access of the example crew",
    "crews.deal_post.post": "pure, with tests of its own",
    "crews.webhooks.retry": "pure, with tests of its own",
    "crews.webhooks.signing": "pure; the signature is a promise to receivers",
    "deploy.configuration": "the owner's files, with tests of their own",
    "deploy.preflight": "checks that change nothing, before the steps that do",
    "history.schema": "SQL alone",
    "logs.journald": "a protocol of its own",
    "notify.texts": "pure; sentences for people, in two languages",
    "sandbox.shop": "an app on a port of its own",
    "systemd.fd_store": "a protocol of its own",
    "systemd.watchdog": "the rule for heartbeats, with tests of its own",
}
"""Modules with a single importer in their own folder, and the reason."""


def importers() -> dict[str, set[str]]:
    """Return the modules that import each module, by dotted names below `smartlinkd`."""
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "smartlinkd").rglob("*.py")
    }
    known, found = set(names.values()), defaultdict[str, set[str]](set)
    for path, importer in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported = {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
                for name in imported & known:
                    found[name].add(importer)
    return found


def test_small_modules_have_several_importers_or_a_reason() -> None:
    alone = set()
    for name, by in importers().items():
        path = ROOT / (name.replace(".", "/") + ".py")
        if not path.exists() or path.name == "__main__.py":
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        neighbours = {each.rpartition(".")[0] for each in by if not each.endswith("__init__")}
        if lines < SMALL and len(by) == 1 and neighbours == {name.rpartition(".")[0]}:
            alone.add(name.removeprefix("smartlinkd."))
    assert alone == EXCEPTIONS.keys()
