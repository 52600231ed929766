"""The page's copies of feeds: whatever happens on the way, they become what the server has.

The page's code (`page/src/link`) is run by node, against the runs and subscriptions of the server.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import page_sources
import pytest
from effort import tries

from setpoint.meta.errors import ServiceUnavailable
from setpoint.web.shared_feeds import FeedRun, Subscription

DRIVER = Path(page_sources.__file__).with_name("feed_tab.mjs")
LINGER = 2_000
"""Milliseconds for which the page keeps a feed that no component shows."""
CREDIT = 128 << 10
"""Bytes of a channel that may be on their way to the page."""
LARGE = 60_000
"""Bytes of a large item."""
Happens = Callable[..., Any]


@pytest.fixture
def happens(tmp_path: Path) -> Iterator[Happens]:
    with page_sources.page_code(DRIVER, tmp_path) as happens:
        yield happens


class Server:
    """Feeds of the server, and one connection of the page, whose messages wait until the test delivers them."""

    def __init__(self, happens: Happens) -> None:
        self._page = happens
        self.runs: dict[str, FeedRun] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._to_page: deque[bytes] = deque()
        self._to_server: deque[Any] = deque()
        self.happens("start")

    def happens(self, event: str, data: Any = None) -> Any:
        """Let something happen in the page; return the state of its components if that is asked for."""
        sent, states = self._page(event, data)
        for message in sent:
            if message["op"] == "dial":
                self._drop()
                self._to_page = deque([b'{"id":0,"type":"hello","user":"","version":"","features":[],"feeds":[]}'])
            else:
                self._to_server.append(message)
        return states

    def lose(self) -> None:
        """Lose the connection, with everything that is on its way."""
        self.happens("lose")
        self._drop()

    def _drop(self) -> None:
        for each in self._subscriptions.values():
            each.run.subscriptions.discard(each)
        self._subscriptions.clear()
        self._to_server.clear()
        self._to_page.clear()

    def set(self, feed: str, key: str, value: int, text: str = "") -> None:
        self.run(feed).set(key, {"value": value, "text": text})

    def run(self, feed: str) -> FeedRun:
        if feed not in self.runs:
            self.runs[feed] = FeedRun()
            self.runs[feed].synced()
        return self.runs[feed]

    def fail(self, feed: str) -> None:
        """End a feed as if the server was overloaded; the next subscriber finds the same state."""
        failed = self.run(feed)
        follower = self.runs[feed] = FeedRun()
        follower.items.update(failed.items)
        follower.synced()
        failed.end(ServiceUnavailable("overloaded"))

    def receive(self) -> bool:
        """Take a message of the page."""
        if not self._to_server:
            return False
        match self._to_server.popleft():
            case {"op": "open", "id": channel, "feed": feed}:
                run = self.run(feed)
                self._subscriptions[channel] = subscription = Subscription(run, channel, lambda: None)
                run.subscriptions.add(subscription)
            case {"op": "credit", "id": channel, "n": number, "bytes": size}:
                if (found := self._subscriptions.get(channel)) is not None:
                    found.grant(number, size)
            case {"op": "close", "id": channel}:
                if (found := self._subscriptions.pop(channel, None)) is not None:
                    found.run.subscriptions.discard(found)
        return True

    def send(self) -> bool:
        """Put the next message of each feed on its way."""
        messages = [each.next_message() for each in self._subscriptions.values()]
        self._to_page += [each for each in messages if each is not None]
        on_their_way = Counter[bytes]()
        for message in self._to_page:
            on_their_way[message.partition(b",")[0]] += len(message)
        assert max(on_their_way.values(), default=0) < CREDIT + LARGE + 1_000
        return any(messages)

    def deliver(self) -> bool:
        """Deliver a message to the page."""
        if not self._to_page:
            return False
        self.happens("receive", self._to_page.popleft().decode())
        return True

    def settle(self) -> None:
        """Deliver everything, and let the page wait for what it waits for."""
        idle = 0
        while idle < 3:
            self.happens("pass", 40_000)
            moved = False
            while self.receive() or self.send() or self.deliver():
                moved = True
            idle = 0 if moved else idle + 1

    def check(self, about: str = "") -> None:
        for state in self.happens("state"):
            expected = {key: orjson.loads(item) for key, item in self.run(state["feed"]).items.items()}
            assert state["held"] and state["synced"] and state["error"] is None, about
            assert state["items"] == expected, about


def test_a_feed_that_ends_between_the_rendering_and_the_mounting_of_a_component_is_followed(happens: Happens) -> None:
    """Components hold their feeds after they were painted, and a busy browser paints late."""
    server = Server(happens)
    server.set("objects", "a", 1)
    server.happens("render", [1, "objects"])
    server.happens("mount", 1)
    server.settle()
    server.happens("unmount", 1)
    server.happens("pass", LINGER - 1)
    server.happens("render", [2, "objects"])
    server.happens("pass", 1)
    server.happens("mount", 2)
    server.set("objects", "b", 2)
    server.settle()
    server.check()


def test_a_component_that_retries_a_feed_leaves_no_other_behind(happens: Happens) -> None:
    server = Server(happens)
    server.set("objects", "a", 1)
    server.happens("render", [1, "objects"])
    server.happens("mount", 1)
    server.settle()
    server.fail("objects")
    while server.send() or server.deliver():
        pass
    assert server.happens("state")[0]["error"]["code"] == 503
    server.happens("render", [2, "objects"])  # it does not wait for the next attempt
    server.happens("mount", 2)
    assert [state["error"]["code"] for state in server.happens("state")] == [503, 503], "shown until there is an answer"
    server.set("objects", "b", 2)
    server.settle()
    server.check()


def test_more_updates_than_the_page_has_granted_at_first(happens: Happens) -> None:
    server = Server(happens)
    server.happens("render", [1, "objects"])
    server.happens("mount", 1)
    for number in range(300):
        server.set("objects", "a", number)
        while server.receive() or server.send() or server.deliver():
            pass
    server.check()


def test_the_page_becomes_what_the_server_has(happens: Happens) -> None:
    """Random changes, deliveries, failures, lost connections, and components that come and go."""
    for seed in range(tries(60, 2_000)):
        random, server = Random(seed), Server(happens)
        names, components, last = ("a", "b"), list[int](), 0
        for _ in range(200):
            match random.randrange(12):
                case 0 | 1 | 2:
                    text = random.choice(("", "", "x" * 3_000, "\u4e2d" * (LARGE // 3), "\U0001f600" * (LARGE // 4)))
                    server.set(random.choice(names), random.choice("uvwxyz"), random.randrange(100), text)
                case 3:
                    server.run(random.choice(names)).remove(random.choice("uvwxyz"))
                case 4 | 5:
                    server.receive()
                case 6:
                    server.send()
                case 7 | 8:
                    server.deliver()
                case 9:
                    server.happens("pass", random.choice((10, 300, 1_999, 2_000, 5_000)))
                case 10 if random.random() < 0.3:
                    server.fail(random.choice(names)) if random.random() < 0.5 else server.lose()
                case 11 if components and random.random() < 0.5:
                    server.happens("unmount", components.pop(random.randrange(len(components))))
                case 11:
                    last += 1
                    components.append(last)
                    server.happens("render", [last, random.choice(names)])
                    if random.random() < 0.5:
                        server.happens("pass", random.choice((1, 100, 2_000)))
                    server.happens("mount", last)
        server.settle()
        server.check(f"seed {seed}")
        for component in components:
            server.happens("unmount", component)
        server.happens("pass", LINGER)
