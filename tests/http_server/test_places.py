"""Places: the shares of one token and of all together, and which body gives way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.errors import TooManyAtOnce, Unavailable
from smartlinkd.http_server.places import Places


@pytest.fixture
def places() -> Places:
    """For 16 connections: 4 places for a token, 10 for followers, 12 in all."""
    return Places(16)


@contextmanager
def followers(places: Places, *tokens: str) -> Iterator[ExitStack]:
    """Hold a follower's place for each of the tokens."""
    with ExitStack() as held:
        for token in tokens:
            held.enter_context(places.follow(token))
        yield held


class Bodies:
    """Bodies that never arrive, by name: `cancelled` are those that had to give way."""

    def __init__(self, places: Places, nursery: trio.Nursery) -> None:
        self._places = places
        self._nursery = nursery
        self.cancelled: list[str] = []

    async def begin(self, name: str, sender: str, *, is_token: bool = False) -> None:
        self._nursery.start_soon(self._read, name, sender, is_token)
        await wait_all_tasks_blocked()

    async def _read(self, name: str, sender: str, is_token: bool) -> None:
        try:
            with self._places.receive(sender, is_token=is_token):
                await trio.sleep_forever()
        except Unavailable:
            self.cancelled.append(name)


@pytest.fixture
async def bodies(places: Places, nursery: trio.Nursery) -> Bodies:
    return Bodies(places, nursery)


@pytest.mark.parametrize("connections", [1, 2, 3])
async def test_few_connections_have_a_place_for_each_purpose(connections: int) -> None:
    places = Places(connections)
    with places.follow("token"):
        assert places.taken == 1
    with places.receive("address", is_token=False):
        assert places.taken == 1


async def test_token_with_its_share_is_refused_and_another_is_not(places: Places) -> None:
    with followers(places, *"aaaa"):
        with pytest.raises(TooManyAtOnce, match="this token has 4 ") as refused, places.follow("a"):
            pass
        assert refused.value.retry_after == 5
        with pytest.raises(TooManyAtOnce), places.receive("a", is_token=True):
            pass
        with places.follow("b"), places.receive("b", is_token=True):
            assert places.taken == 6


async def test_place_is_free_after_its_block(places: Places) -> None:
    for _ in range(3):
        with followers(places, *"aaaa"):
            assert places.taken == 4
        with pytest.raises(ZeroDivisionError), places.receive("a", is_token=True):
            raise ZeroDivisionError
        assert places.taken == 0


def test_follower_without_a_place_is_refused(places: Places) -> None:
    with followers(places, *"aaaabbbbcc"):
        with pytest.raises(Unavailable, match="10 event streams") as refused, places.follow("d"):
            pass
        assert refused.value.retry_after == 5


async def test_body_of_a_token_counts_with_its_followers(places: Places, bodies: Bodies) -> None:
    await bodies.begin("one", "a", is_token=True)
    with (
        followers(places, *"aaa"),
        pytest.raises(TooManyAtOnce, match="this token has 4 "),
        places.follow("a"),
    ):
        pass


async def test_body_of_the_sender_with_the_most_gives_way(places: Places, bodies: Bodies) -> None:
    await bodies.begin("first of all", "192.0.2.1")
    for number in range(12):
        await bodies.begin(str(number), "192.0.2.2")
    assert bodies.cancelled == ["0"]


async def test_follower_does_not_give_way_to_a_body(places: Places, bodies: Bodies) -> None:
    with followers(places, *"aaaabbbbcc"):
        for number in range(4):
            await bodies.begin(str(number), "192.0.2.1")
        assert bodies.cancelled == ["0", "1"]
        assert places.taken == places.most


async def test_body_that_arrives_in_the_turn_it_should_give_way_is_taken(places: Places) -> None:
    with (
        places.receive("192.0.2.1", is_token=False),
        places.receive("192.0.2.2", is_token=False),
        followers(places, *"aaaabbbbcc"),
        places.receive("192.0.2.3", is_token=False),
    ):
        assert places.taken == places.most
