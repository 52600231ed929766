"""A command that is a server governs the garbage collector, and gives it back as it was."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from setpoint.cli import serving
from setpoint.cli.failures import Failed


class Listener:
    said = ""

    def print(self, text: str) -> None:
        self.said += text

    def flush(self) -> None:
        pass


def test_nothing_is_collected_until_it_is_ready() -> None:
    listener: Any = Listener()
    before = gc.get_threshold(), list(gc.callbacks)

    @serving.server
    def run(call: Any) -> str:
        async def main() -> None:
            assert not gc.isenabled()
            serving.ready(call, "up")
            assert gc.isenabled() and gc.get_threshold() != before[0]

        asyncio.run(main())
        return "over"

    assert run(listener) == "over" and listener.said == "up"
    assert gc.isenabled() and (gc.get_threshold(), gc.callbacks) == before


def test_one_that_cannot_start_gives_it_back() -> None:
    @serving.server
    def run(call: Any) -> None:
        assert not gc.isenabled()
        raise Failed("no")

    with pytest.raises(Failed):
        run(Listener())
    assert gc.isenabled()
