"""The dispatcher over a store on disk: which calls it makes, when, and in which order."""

from __future__ import annotations

import hmac
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import SecretBytes, SecretStr

from smartlinkd.crews.webhooks.dispatcher import WebhookLimits
from smartlinkd.errors import Unavailable
from smartlinkd.logs.context import ContextFilter
from smartlinkd.logs.formats import context_fields
from smartlinkd.store.model import WebhookTarget
from tests.fakes.internet import answer, hang, reset

OpenReceiver = Callable[..., Awaitable[Any]]


async def test_calls_to_one_target_are_made_in_order_and_one_at_a_time(
    dispatcher: Any, receiver: Any
) -> None:
    bodies = [b"%d" % number for number in range(20)]
    await dispatcher.call(receiver.url(), *bodies)
    await dispatcher.begin()
    await dispatcher.done()

    assert receiver.bodies == bodies
    assert receiver.most_at_once == 1


async def test_call_has_the_targets_credential_and_a_signature(
    dispatcher: Any, receiver: Any
) -> None:
    key = b"0123456789abcdef01234567"
    execution_id = await dispatcher.call(
        receiver.url("/a?b=c"), b'{"a":1}', auth=SecretStr("Bearer swordfish")
    )
    await dispatcher.begin(key=SecretBytes(key))
    await dispatcher.done()

    (request,) = receiver.calls
    assert (request.method, request.path, request.content) == ("POST", "/a?b=c", b'{"a":1}')
    headers = request.headers
    assert headers["authorization"] == "Bearer swordfish"
    assert headers["webhook-id"] == f"msg_{execution_id}_1"
    assert int(headers["webhook-timestamp"]) == int(dispatcher.wall().timestamp())
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.content
    expected = hmac.new(key, signed, "sha256").digest()
    assert headers["webhook-signature"] == "v1," + b64encode(expected).decode()


async def attempts(dispatcher: Any, count: int) -> Any:
    """Wait until the one call that waits was tried so often; returns it."""
    (delivery,) = await dispatcher.until(lambda found: found and found[0].attempts == count)
    return delivery


async def test_failed_call_is_repeated_with_the_same_id_and_body(
    dispatcher: Any, receiver: Any, mock_clock: trio.testing.MockClock
) -> None:
    receiver.next.extend([answer(503), reset])
    await dispatcher.call(receiver.url(), b'{"id": "e-1"}')
    await dispatcher.begin(key=SecretBytes(b"s"))

    for count, full in ((1, 5), (2, 10)):
        delivery = await attempts(dispatcher, count)
        wait = (delivery.next_at - dispatcher.wall()).total_seconds()
        assert full * 0.8 <= wait <= full
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(wait - 0.1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(receiver.calls) == count
        mock_clock.jump(0.2)
    await dispatcher.done()

    assert receiver.bodies == [b'{"id": "e-1"}'] * 3
    headers = [request.headers for request in receiver.calls]
    assert len({each["webhook-id"] for each in headers}) == 1
    times = [int(each["webhook-timestamp"]) for each in headers]
    assert times == sorted(set(times))
    assert len({each["webhook-signature"] for each in headers}) == 3


async def test_calls_behind_a_failed_one_wait_over_a_restart(
    dispatcher: Any, receiver: Any, mock_clock: trio.testing.MockClock
) -> None:
    receiver.next.append(answer(500))
    await dispatcher.call(receiver.url(), b"first", b"second", b"third")
    stop = await dispatcher.begin()
    await attempts(dispatcher, 1)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert receiver.bodies == [b"first"]

    stop()  # and a new start knows it, too
    await dispatcher.begin()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert receiver.bodies == [b"first"]

    mock_clock.jump(5)
    await dispatcher.done()
    assert receiver.bodies == [b"first", b"first", b"second", b"third"]


async def test_failing_target_holds_up_no_other(
    dispatcher: Any, receiver: Any, mock_clock: trio.testing.MockClock
) -> None:
    bad = WebhookTarget("step", receiver.url("/bad"))
    good = WebhookTarget("task", receiver.url("/good"))
    execution_id = await dispatcher.execution(bad, good)
    receiver.next.append(answer(500))
    await dispatcher.queue(execution_id, bad, *[b"bad"] * 150)  # more than one look shows
    await dispatcher.begin()
    await dispatcher.until(lambda found: found[0].attempts == 1)

    await dispatcher.queue(execution_id, good, b"good")
    dispatcher.nudge()
    await receiver.until(2)
    assert receiver.bodies == [b"bad", b"good"]


@pytest.mark.parametrize("status", [301, 404, 410])
async def test_refused_call_is_given_up_and_the_next_is_made(
    dispatcher: Any, receiver: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(ContextFilter())
    receiver.next.append(answer(status, Location=receiver.url("/elsewhere")))
    execution_id = await dispatcher.call(receiver.url(), b"first", b"second")
    await dispatcher.begin()
    await dispatcher.done()

    assert receiver.bodies == [b"first", b"second"]
    assert (
        f"gave up the task webhook call 1 of execution {execution_id} to "
        f"http://127.0.0.1:{receiver.port}: HTTP {status} (attempt 1)"
    ) in caplog.text
    (given_up,) = [one for one in caplog.records if hasattr(one, "event")]
    assert context_fields(given_up)["event"] == ["webhook_given_up"]
    assert context_fields(given_up)["kickoff_id"] == [execution_id]
    assert context_fields(given_up)["crew"] == ["deal-post"]


async def test_call_older_than_the_maximum_is_made_once_more_at_most(
    dispatcher: Any, receiver: Any, mock_clock: trio.testing.MockClock
) -> None:
    receiver.usual = answer(500)
    await dispatcher.call(receiver.url(), b"old")
    mock_clock.jump(WebhookLimits().max_age_s + 1)
    await dispatcher.begin()
    await dispatcher.done()
    assert receiver.bodies == [b"old"]


async def test_call_that_always_fails_is_given_up_after_a_day(
    dispatcher: Any, receiver: Any, mock_clock: trio.testing.MockClock
) -> None:
    receiver.usual = answer(500)
    began = dispatcher.wall()
    await dispatcher.call(receiver.url(), b"{}")
    await dispatcher.begin()
    while await dispatcher.waiting():
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(600)
        dispatcher.nudge()
    assert timedelta(hours=25) <= dispatcher.wall() - began <= timedelta(hours=27)


async def test_call_cut_off_or_not_recorded_at_a_stop_is_repeated_with_its_id(
    dispatcher: Any, receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = trio.Event()

    async def never(_: int) -> None:
        noting.set()
        await trio.sleep_forever()

    receiver.next.append(hang)
    await dispatcher.call(receiver.url(), b"{}", b"next")
    stop = await dispatcher.begin()
    await receiver.until(1)
    stop()
    with monkeypatch.context() as patched:
        patched.setattr(dispatcher.store, "remove_delivery", never)
        stop = await dispatcher.begin()
        await noting.wait()
        stop()
        await trio.testing.wait_all_tasks_blocked(0.01)
    await dispatcher.begin()
    await dispatcher.done()

    assert receiver.bodies == [b"{}", b"{}", b"{}", b"next"]
    *ids, last = [request.headers["webhook-id"] for request in receiver.calls]
    assert len(set(ids)) == 1
    assert last not in ids


async def test_calls_over_many_sudden_ends_are_all_made_in_order(
    dispatcher: Any, receiver: Any
) -> None:
    executions = [await dispatcher.call(receiver.url(), b"1", b"2", b"3") for _ in range(8)]
    later = 0
    while await dispatcher.waiting():
        seen = len(receiver.calls)
        stop = await dispatcher.begin()
        await receiver.until(seen + 1)
        for _ in range(later):
            await trio.lowlevel.checkpoint()
        stop()
        await trio.testing.wait_all_tasks_blocked(0.005)
        later += 10

    for execution_id in executions:
        bodies = [
            request.content
            for request in receiver.calls
            if execution_id in request.headers["webhook-id"]
        ]
        assert sorted(set(bodies)) == [b"1", b"2", b"3"]
        assert bodies == sorted(bodies)  # repeated, maybe, but never out of turn


async def unavailable(*_: object, **__: object) -> None:
    raise Unavailable("its disk is full", retry_after=5)


@pytest.mark.parametrize("question", ["due_deliveries", "remove_delivery"])
async def test_dispatcher_waits_for_a_store_that_is_unavailable(  # noqa: PLR0917 - fixtures
    dispatcher: Any,
    receiver: Any,
    question: str,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await dispatcher.call(receiver.url(), b"{}")
    with monkeypatch.context() as patched:
        patched.setattr(dispatcher.store, question, unavailable)
        await dispatcher.begin()
        for tries, full in ((1, 1), (2, 2), (3, 4)):
            while caplog.text.count("its disk is full") < tries:
                await trio.lowlevel.checkpoint()
            mock_clock.jump(full * 0.75)
            await trio.testing.wait_all_tasks_blocked()
            assert caplog.text.count("its disk is full") == tries
            if tries < 3:
                mock_clock.jump(full * 0.25)
    mock_clock.jump(1)
    await dispatcher.done()

    assert receiver.bodies == [b"{}"]  # also not a second time for want of a note


async def test_malformed_address_ends_its_call_alone(dispatcher: Any, receiver: Any) -> None:
    await dispatcher.call("http://\x00/swordfish", b"{}")
    await dispatcher.call(receiver.url(), b"{}")
    await dispatcher.begin()
    await dispatcher.done()
    assert receiver.bodies == [b"{}"]


async def test_log_of_calls_has_no_path_and_no_credential(
    dispatcher: Any,
    receiver: Any,
    mock_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="smartlinkd")
    receiver.next.extend([answer(503), answer(404), answer(200)])
    credential = SecretStr("Bearer swordfish")
    url = receiver.url("/swordfish?token=swordfish")
    await dispatcher.call(url, b"swordfish", b"swordfish", auth=credential)
    await dispatcher.begin(key=SecretBytes(b"swordfish"))
    await attempts(dispatcher, 1)
    mock_clock.jump(5)
    await dispatcher.done()
    await trio.testing.wait_all_tasks_blocked(0.05)

    assert caplog.text.count(f"http://127.0.0.1:{receiver.port}") >= 3
    assert "swordfish" not in caplog.text


LIMITS = WebhookLimits()


@pytest.fixture
def looks(dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[None]]]:
    """Callbacks for the ends of the next reads of due calls, one a read."""
    happens: list[Callable[[], Awaitable[None]]] = []
    due_deliveries = dispatcher.store.due_deliveries

    async def looked(*arguments: Any, **options: Any) -> Any:
        found = await due_deliveries(*arguments, **options)
        if happens:
            await happens.pop(0)()
        return found

    monkeypatch.setattr(dispatcher.store, "due_deliveries", looked)
    return happens


async def test_call_queued_while_due_calls_are_read_is_made_at_once(
    dispatcher: Any, receiver: Any, looks: list[Callable[[], Awaitable[None]]]
) -> None:
    async def queue() -> None:
        await dispatcher.call(receiver.url(), b"{}")
        dispatcher.nudge()

    await dispatcher.begin()
    await trio.testing.wait_all_tasks_blocked(0.01)
    looks.append(queue)
    dispatcher.nudge()
    with trio.fail_after(LIMITS.longest_sleep_s / 4):
        await receiver.until(1)


async def hanging(dispatcher: Any, open_receiver: OpenReceiver, hosts: int) -> list[Any]:
    """Open receivers that hang, and queue ten calls to each."""
    receivers = [await open_receiver() for _ in range(hosts)]
    for receiver in receivers:
        receiver.usual = hang
        for _ in range(10):
            await dispatcher.call(receiver.url(), b"{}")
    return receivers


@pytest.mark.parametrize(("calls", "size"), [(150, 2), (8, 3 * 1024 * 1024)])
async def test_many_calls_to_a_host_that_hangs_hide_no_other(
    dispatcher: Any, open_receiver: OpenReceiver, calls: int, size: int
) -> None:
    silent, other = await open_receiver(), await open_receiver("127.0.0.2")
    silent.usual = hang
    for _ in range(calls):
        await dispatcher.call(silent.url(), b"x" * size)
    await dispatcher.begin()
    await silent.until(LIMITS.at_once_to_a_host)
    await dispatcher.call(other.url(), b"{}")
    dispatcher.nudge()
    with trio.fail_after(LIMITS.longest_sleep_s / 2):  # of the clock that only the test moves
        await other.until(1)
    assert silent.most_at_once == len(silent.calls) == LIMITS.at_once_to_a_host


async def test_slots_are_limited_for_later_calls_too(
    dispatcher: Any, open_receiver: OpenReceiver
) -> None:
    receivers = await hanging(dispatcher, open_receiver, 7)
    await dispatcher.begin()
    for receiver in receivers:
        await receiver.until(LIMITS.at_once_to_a_host)
    receivers += await hanging(dispatcher, open_receiver, 3)
    dispatcher.nudge()
    while sum(receiver.at_once for receiver in receivers) < LIMITS.at_once:
        await trio.testing.wait_all_tasks_blocked(0.01)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert sum(receiver.at_once for receiver in receivers) == LIMITS.at_once == 16
