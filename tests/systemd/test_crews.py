"""A crew in the service."""

from __future__ import annotations

from tests.systemd.machine import PORTAL, Service


def test_the_example_crew_converts_links(service: Service) -> None:
    link = f"http://127.0.0.1:{PORTAL + 1}/product/88201679/23456789012"
    begun = service.kickoff("deal-post", links=[link])
    ended = service.execution("deal-post", begun, wait=40)
    assert ended["state"] == "SUCCESS", ended["error"]
    assert f"http://127.0.0.1:{PORTAL + 2}/" in ended["result"]
