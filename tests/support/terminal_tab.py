"""The page's side of a terminal: its own code, run by node. A test decides when each message arrives."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page_sources import bundle


class TerminalTab:
    """Keys, and messages in both directions. Nothing happens between two calls."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.said: list[Any] = []
        """Messages to the server that a test has not delivered yet."""

    def begin(self) -> None:
        """Begin with a new terminal."""
        self.said.clear()
        self._happens("begin", None)

    def press(self, keys: str) -> None:
        self._happens("keys", keys)

    def receive(self, message: Any) -> None:
        """Deliver a message of the server."""
        self._happens("receive", message)

    def draw(self) -> None:
        """Let xterm parse what was written: a prompt is shown then."""
        self._happens("draw", None)

    def _happens(self, event: str, data: Any) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps([event, data]) + "\n")
        stdin.flush()
        self.said += json.loads(stdout.readline())


@contextmanager
def terminal_tab(directory: Path) -> Iterator[TerminalTab]:
    """Run the code of the page while the block runs; `directory` is for the bundle."""
    script = bundle(Path(__file__).with_suffix(".mjs"), directory / "terminal_tab.mjs")
    with subprocess.Popen(["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield TerminalTab(process)
        finally:
            process.kill()
