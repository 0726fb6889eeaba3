"""Notices through Apprise itself, to a JSON receiver and a mail server of the test's own."""

from __future__ import annotations

import email
import email.policy
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import apprise
import pytest
import trio
from pydantic import SecretStr

from smartlinkd.notify.channels import AppriseChannel, NotSent
from smartlinkd.notify.texts import Language, title_and_text
from tests.notify.conftest import Receiver

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


@dataclass
class MailServer:
    """Takes mail as RFC 5321 says, without encryption."""

    port: int = 0
    mails: list[bytes] = field(default_factory=list)

    async def answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(b"220 test\r\n")
            received = b""
            while True:
                while b"\r\n" not in received:
                    chunk = await stream.receive_some()
                    if not chunk:
                        return
                    received += chunk
                line, _, received = received.partition(b"\r\n")
                command = line[:4].upper()
                if command == b"DATA":
                    await stream.send_all(b"354 go on\r\n")
                    while b"\r\n.\r\n" not in received:
                        received += await stream.receive_some()
                    mail, _, received = received.partition(b"\r\n.\r\n")
                    self.mails.append(mail)
                await stream.send_all(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")


@pytest.fixture
async def mail_server(nursery: trio.Nursery) -> AsyncIterator[MailServer]:
    made = MailServer()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, made.answer, listeners)
    made.port = listeners[0].socket.getsockname()[1]
    yield made
    nursery.cancel_scope.cancel()


def json_url(receiver: Receiver) -> SecretStr:
    """The receiver's address, as Apprise writes it, with a key in it."""
    return SecretStr(receiver.url.replace("http:", "json:").partition("/a-key")[0] + f"/{KEY}")


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
    [body] = receiver.bodies
    assert body["title"] == title
    assert remedy in body["message"]
    assert "a captcha" in body["message"]


@pytest.mark.parametrize("language", ["en", "vi"])
async def test_mail_service_gets_title_and_text(
    mail_server: MailServer, language: Language
) -> None:
    url = SecretStr(
        f"mailto://127.0.0.1:{mail_server.port}?from=daemon@test.example&to=owner@test.example"
    )
    await AppriseChannel("notify.apprise[0]", url, language).send(BODY)
    mail = email.message_from_bytes(mail_server.mails[0], policy=email.policy.default)
    title, text = title_and_text(BODY, language)
    assert mail["Subject"] == title
    plain = mail.get_body(("plain", "html"))
    assert plain is not None
    assert text.split("\n")[0][:40] in plain.get_content()


async def test_refusal_is_a_failure_and_tells_no_address(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers.append(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
    with caplog.at_level(logging.DEBUG), pytest.raises(NotSent) as refused:
        await AppriseChannel("notify.apprise[0]", json_url(receiver), "en").send(BODY)
    assert receiver.bodies
    assert KEY not in caplog.text + str(refused.value)


async def test_hanging_service_fails_at_the_deadline(receiver: Receiver) -> None:
    receiver.hangs = True
    channel = AppriseChannel("notify.apprise[0]", json_url(receiver), "en", deadline_s=0.5)
    with pytest.raises(NotSent, match="no answer within"):
        await channel.send(BODY)


async def test_unknown_service_is_final() -> None:
    channel = AppriseChannel("notify.apprise[0]", SecretStr(f"nowhere://{KEY}"), "en")
    with pytest.raises(NotSent) as refused:
        await channel.send(BODY)
    assert refused.value.is_final
    assert KEY not in str(refused.value)
