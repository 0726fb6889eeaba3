"""Notices through Apprise itself, to a JSON receiver and a mail server of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import apprise
import pytest
from pydantic import SecretStr

from smartlinkd.notify.channels import AppriseChannel, NotSent
from smartlinkd.notify.texts import Language
from tests.fakes.internet import Receiver, answer, hang

BODY = {
    "event": "account_paused",
    "account": "4711",
    "text": "account 4711 is now paused: a captcha",
    "host": "vps",
}
KEY = "a-secret-key"
# Loads the library's modules, which make loggers, before the tests begin.
apprise.Apprise.instantiate("json://localhost")


@pytest.fixture(autouse=True)
def levels_of_loggers() -> Iterator[None]:
    """Set back what the channel sets for the whole process."""
    yield
    for name in ("apprise", "urllib3"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def json_url(receiver: Receiver) -> SecretStr:
    """The receiver's address, as Apprise writes it, with a key in it."""
    return SecretStr(receiver.url(f"/{KEY}").replace("http:", "json:"))


@pytest.mark.parametrize(
    ("language", "title", "remedy"),
    [
        ("en", "The portal wants you: account 4711", "answer its question"),
        ("vi", "Cổng tiếp thị cần bạn: tài khoản 4711", "mở cổng trên trình duyệt"),
    ],
)
async def test_json_service_gets_title_and_text(
    receiver: Receiver, language: Language, title: str, remedy: str
) -> None:
    await AppriseChannel("notify.apprise[0]", json_url(receiver), language).send(BODY)
    [call] = receiver.calls
    body = call.body
    assert body["title"] == title
    assert remedy in body["message"]
    assert "a captcha" in body["message"]


async def test_refusal_is_a_failure_and_tells_no_address(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.next.append(answer(500))
    with caplog.at_level(logging.DEBUG), pytest.raises(NotSent) as refused:
        await AppriseChannel("notify.apprise[0]", json_url(receiver), "en").send(BODY)
    assert receiver.calls
    assert KEY not in caplog.text + str(refused.value)


async def test_hanging_service_fails_at_the_deadline(receiver: Receiver) -> None:
    receiver.next.append(hang)
    channel = AppriseChannel("notify.apprise[0]", json_url(receiver), "en", deadline_s=0.5)
    with pytest.raises(NotSent, match="no answer within"):
        await channel.send(BODY)


async def test_unknown_service_is_final() -> None:
    channel = AppriseChannel("notify.apprise[0]", SecretStr(f"nowhere://{KEY}"), "en")
    with pytest.raises(NotSent) as refused:
        await channel.send(BODY)
    assert refused.value.is_final
    assert KEY not in str(refused.value)
