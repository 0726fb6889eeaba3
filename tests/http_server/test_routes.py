"""Rules that match paths, with HEAD or without."""

from __future__ import annotations

from smartlinkd.http_server.app import GuardedQuart


async def test_rule_for_get_without_head_refuses_head() -> None:
    app = GuardedQuart()

    async def part(number: int) -> str:
        return str(number)

    app.add_url_rule("/with/<int:number>", "with", part, methods=["GET"])
    app.add_url_rule("/without/<int:number>", "without", part, methods=["GET"], head=False)
    client = app.test_client()
    assert (await client.head("/with/3")).status_code == 200
    assert (await client.get("/without/3")).status_code == 200
    answer = await client.head("/without/3")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
