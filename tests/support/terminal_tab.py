"""The page's side of a terminal: its own code, run by node. A test decides when each message arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page_sources import page_code


class TerminalTab:
    """Keys, and messages in both directions. Nothing happens between two calls."""

    def __init__(self, happens: Callable[[str, Any], list[Any]]) -> None:
        self._happens = happens
        self.said: list[Any] = []
        """Messages to the server that a test has not delivered yet."""

    def begin(self) -> None:
        """Begin with a new terminal."""
        self.said = self._happens("begin", None)

    def press(self, keys: str) -> None:
        self.said += self._happens("keys", keys)

    def receive(self, message: Any) -> None:
        """Deliver a message of the server."""
        self.said += self._happens("receive", message)

    def draw(self) -> None:
        """Let xterm parse what was written: a prompt is shown then."""
        self.said += self._happens("draw", None)


@contextmanager
def terminal_tab(directory: Path) -> Iterator[TerminalTab]:
    """Run the code of the page while the block runs; `directory` is for the bundle."""
    with page_code(Path(__file__).with_suffix(".mjs"), directory) as happens:
        yield TerminalTab(happens)
