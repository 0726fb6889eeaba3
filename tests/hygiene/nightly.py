"""A pytest plugin: tests that each commit's run leaves to `./run nightly`.

`KEPT` has folders, files and tests, with the number of each test's cases that a commit's run keeps,
spread evenly over all cases. The longest matching entry counts; tests without one are kept whole.
`--nightly` runs those that are left out, and none of those that are kept. A file or folder named on
the command line runs whole. The folders of the ini option `testpaths` do not count as named.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
KEPT = {
    "simulation": 0,
    "every_step": 0,
    "faults": 24,
    # With a real Chromium. The fault matrix has the same faults on a fake one.
    "e2e/page": 0,
    "e2e/page/test_convert.py::test_keyboard_alone_converts": 1,
    "e2e/page/test_session.py::test_end_of_session_asks_for_the_password": 1,
    "e2e/test_faults.py": 0,
    "e2e/test_fifteen_links.py": 1,
    "e2e/test_open_api.py": 2,
    "e2e/crews/test_left_behind.py": 1,
    "e2e/test_owners_extension.py": 0,
    # The contract has the same answers without the commands and MCP.
    "e2e/test_client_commands.py": 0,
    "e2e/test_client_commands.py::test_links_are_converted": 1,
    "e2e/test_client_commands.py::test_crew_runs": 1,
    "e2e/test_client_commands.py::test_wrong_usage": 3,
    "e2e/test_mcp.py": 0,
    "e2e/test_mcp.py::test_official_client_converts": 1,
    "e2e/test_mcp.py::test_key_sees": 1,
    "e2e/test_mcp.py::test_only_api_keys": 1,
    "e2e/test_demo.py::test_demo_ends": 0,
    "e2e/test_demo.py::test_printed": 0,
    "e2e/test_documents.py": 0,
    "e2e/test_shutdown.py": 1,
    "browser/test_actor_chromium.py": 2,
    "marketplace/test_portal_chromium.py": 3,
    "commands/test_doctor.py::test_chromium_without_its_sandbox": 0,
    "history/test_faults.py::test_reader_of_locked_file": 0,
    # Debian's second Chromium is nightly's.
    "browser/test_chromium.py::test_each": 1,
    "browser/test_reach.py::test_closed_port": 1,
    "conversion/test_service_crowd.py::test_client_leaves_at_every_step": 1,
    "security/test_outbound.py": 8,
    "examples/test_examples.py::test_node": 0,
    "fakes/test_contract_portal.py": 3,
    "fakes/test_contract_workers.py": 3,
    "fakes/test_contract.py": 2,
    "fakes/test_contract_disk.py": 2,
    # With thousands of examples each.
    "security/test_http.py::test_mutated_requests": 0,
    "security/test_schemathesis.py": 0,
    "marketplace/test_links_pasted.py::test_decorated": 0,
    "marketplace/test_links_pasted.py::test_found_link": 0,
    "test_run.py": 0,
    # Under a real systemd. An upgrade, a kill, an installation, a restart and a crash are kept.
    "systemd": 0,
    "systemd/test_upgrade_from_before.py": 99,
    "systemd/test_killed.py": 99,
    "systemd/test_install.py": 2,
    "systemd/test_restart.py": 2,
    "systemd/test_crashing.py": 1,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nightly", action="store_true", help="run the tests that each commit's run leaves out"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nightly = config.getoption("--nightly")
    here = config.invocation_params.dir
    named = {here / arg.partition("::")[0] for arg in config.args}
    named -= {here / path for path in config.getini("testpaths")}
    by_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_function[item.nodeid.partition("[")[0]].append(item)
    chosen: set[pytest.Item] = set()
    for cases in by_function.values():
        if named & {cases[0].path, *cases[0].path.parents}:
            chosen.update(cases)
        else:
            kept = _sample(cases, _number_kept(cases[0]))
            chosen.update(set(cases).difference(kept) if nightly else kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _number_kept(item: pytest.Item) -> int | None:
    """Return how many cases of the item's test are kept; None for all."""
    if not item.path.is_relative_to(TESTS):
        return None
    name = f"{item.path.relative_to(TESTS).as_posix()}::{item.name}"
    entries = [entry for entry in KEPT if name.startswith(entry)]
    return KEPT[max(entries, key=len)] if entries else None


def _sample(cases: list[pytest.Item], size: int | None) -> list[pytest.Item]:
    if size is None or size >= len(cases):
        return cases
    cases = sorted(cases, key=lambda item: item.nodeid)
    return [cases[index * len(cases) // size] for index in range(size)]
