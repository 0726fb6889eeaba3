"""The second factor in the page: switched off with a code, on with the app's first code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyotp
import pytest

if TYPE_CHECKING:
    from tests.e2e.page.conftest import Daemon
    from tests.e2e.page.tab import Tab

pytestmark = pytest.mark.chromium


async def test_second_factor_goes_off_and_on_only_with_a_right_code(
    daemon: Daemon, tab: Tab
) -> None:
    await tab.open("security", session=daemon.session)
    await tab.see("A login needs the password and a code")
    await tab.type("Code", "000000")
    await tab.click("button", "Switch it off")
    await tab.see("code", "A login needs the password and a code")
    await tab.until("document.querySelector('.problem') !== null")
    await tab.type("Code", daemon.totp.at(time.time() + 30))
    await tab.click("button", "Switch it off")
    await tab.click("button", "Set it up")
    await tab.find("image", "QR code of the second factor")
    await tab.click("DisclosureTriangle", "Type the secret by hand")
    secret = str(await tab.evaluate("document.querySelector('.secret-line code').innerText"))
    await tab.type("Code", pyotp.TOTP(secret).now())
    await tab.click("button", "Switch it on")
    await tab.see("A login needs the password and a code")
    assert secret not in str(await tab.evaluate("document.body.innerHTML"))
    assert (401, "/api/auth/2fa/disable") in tab.refused
