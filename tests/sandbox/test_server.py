from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import load
from smartlinkd.errors import Invalid
from smartlinkd.sandbox.faults import FAULTS
from smartlinkd.sandbox.open_api import APP_ID, SECRET
from smartlinkd.sandbox.server import main, open_sandbox, usage
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.sandbox.state import SandboxState


async def test_close_does_not_wait_for_a_slow_answer(client: httpx.AsyncClient) -> None:
    async with AsyncExitStack() as answers:
        with trio.fail_after(3):
            async with open_sandbox(hold=1e6) as opened:
                opened.arm("page_endless")
                page = client.stream(
                    "GET",
                    f"{opened.origins.portal}/offer/custom_link",
                    headers={"cookie": cookie_header()},
                )
                answer = await answers.enter_async_context(page)
                assert answer.status_code == 200


async def test_taken_port_is_refused(sandbox: SandboxState) -> None:
    port = httpx.URL(sandbox.origins.shop).port or 0

    with pytest.raises(Invalid, match="--port"):
        async with open_sandbox(ports=(0, port, 0)):
            pass


async def test_usage_names_cookie_and_faults(sandbox: SandboxState) -> None:
    text = usage(sandbox)

    assert cookie_header() in text
    assert all(fault.name in text and str(fault.item or "") in text for fault in FAULTS)


def test_command_at_a_taken_port_is_refused() -> None:
    with pytest.raises(Invalid, match="--port"):
        main(host="127.0.0.1", port=65535)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_command_exits_with_0_by_a_signal(number: signal.Signals) -> None:
    code = "import sys, smartlinkd.sandbox.server as s; sys.exit(s.main(host='127.0.0.1', port=0))"
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(
                trio.run_process,
                [sys.executable, "-W", "error", "-c", code],
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                check=False,
            )
        )
        assert process.stdout is not None
        with trio.fail_after(20):
            seen = b""
            while b"Configuration" not in seen:
                seen += await process.stdout.receive_some()
            process.send_signal(number)
            async for _ in process.stdout:
                pass
            assert await process.wait() == 0


async def test_printed_configuration_loads(sandbox: SandboxState, tmp_path: Path) -> None:
    section = usage(sandbox).split("Configuration for the daemon\n")[1].split("A cookie")[0]
    file = tmp_path / "config.toml"
    file.write_text(textwrap.dedent(section) + '[links]\nsource = "open_api"\n')

    settings = load(file, {"SMARTLINKD_AUTH__PASSWORD_HASH": hash_password("correct horse")})

    assert settings.marketplace.portal_url == sandbox.origins.portal
    assert settings.marketplace.shop_url == sandbox.origins.shop
    assert settings.marketplace.short_urls == (sandbox.origins.short,)
    assert settings.open_api.url == sandbox.origins.open_api
    assert settings.open_api.app_id == APP_ID
    assert settings.open_api.secret.get_secret_value() == SECRET
    assert settings.third_party.url == sandbox.origins.estimate
