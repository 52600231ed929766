"""A command that is a server has the collector of garbage in hand, and gives it back."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from setpoint.cli import serving
from setpoint.cli.failures import Failed


class Collector:
    """What was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.asked.append(name)


class Listener:
    said = ""

    def say(self, text: str) -> None:
        self.said += text

    def flush(self) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    found = Collector()
    monkeypatch.setattr(serving, "gc", found)
    return found


def test_nothing_is_collected_until_it_is_ready(collector: Collector) -> None:
    listener: Any = Listener()

    @serving.server
    def run(call: Any) -> str:
        assert collector.asked == ["disable"]
        serving.ready(call, "up")
        assert collector.asked[-1] == "enable"
        return "over"

    assert run(listener) == "over" and listener.said == "up"


def test_one_that_cannot_start_gives_it_back() -> None:
    @serving.server
    def run(call: Any) -> None:
        assert not gc.isenabled()
        raise Failed("no")

    with pytest.raises(Failed):
        run(Listener())
    assert gc.isenabled()
