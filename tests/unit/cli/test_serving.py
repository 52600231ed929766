"""A server command disables garbage collection during start-up and restores it."""

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


def test_no_garbage_collection_until_ready() -> None:
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


def test_a_failed_start_restores_garbage_collection() -> None:
    @serving.server
    def run(call: Any) -> None:
        assert not gc.isenabled()
        raise Failed("no")

    with pytest.raises(Failed):
        run(Listener())  # type: ignore[arg-type]
    assert gc.isenabled()
