"""Typing into the terminal of the page in a browser."""

from __future__ import annotations

import json

from browser import GuardedPage


class Typist:
    """Types into the terminal of a page, and reads what it shows."""

    def __init__(self, page: GuardedPage) -> None:
        self.page = page

    def open(self) -> Typist:
        self.page.press("`")
        self.until("$")
        return self

    def shown(self) -> str:
        """The visible lines, without blanks at their ends."""
        lines = str(self.page.locator(".terminal-screen .xterm-rows").inner_text()).split("\n")
        return "\n".join(line.replace("\xa0", " ").rstrip() for line in lines)

    def until(self, text: str, timeout: float = 15.0) -> None:
        self.page.until(
            f"[...document.querySelectorAll('.terminal-screen .xterm-rows > div')].map((row) => row.textContent)"
            f".join('\\n').replaceAll('\\xa0', ' ').includes({json.dumps(text)})",
            timeout,
        )

    def until_prompt(self) -> None:
        """Wait until the last line that is not empty is an empty prompt."""
        self.page.until(
            "[...document.querySelectorAll('.terminal-screen .xterm-rows > div')]"
            ".map((row) => row.textContent.replaceAll('\\xa0', ' ').trimEnd()).filter(Boolean).at(-1)?.endsWith(' $')"
        )

    def line(self, text: str) -> str:
        """Type a line, wait for its end, and return the output that is visible."""
        self.page.keyboard.type("clear\n")
        self.page.page.wait_for_timeout(100)
        self.until_prompt()
        self.page.keyboard.type(text)
        self.page.press("Enter")
        self.page.page.wait_for_timeout(100)
        self.until_prompt()
        shown = self.shown().split("\n")
        rows = [number for number, row in enumerate(shown) if row.rstrip()]
        return "\n".join(shown[1 : rows[-1]]).rstrip()
