"""What an exploration is doing, for people who wait for it: how many cases, how long they will take, how far it is."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.times import human_duration

_WORTH_SAYING = 2.0
"""Seconds: what takes less needs no announcement."""
_EVERY = 30.0
"""Seconds between two lines where lines cannot be rewritten."""


class Progress:
    """Writes one line that is rewritten, or, where nobody looks on, a line now and then."""

    def __init__(self, write: Callable[[str], None], monotonic: Callable[[], float], *, live: bool) -> None:
        self._write = write
        self._monotonic = monotonic
        self._live = live
        self._cases = 0
        self._tried = 0
        self._begun = 0.0
        self._said = 0.0
        self._which = ""
        self._announced = False

    def begin(self, chosen: int, cases: int) -> None:
        """Note how many cases will be tried, of how many that there are."""
        self._cases = chosen
        self._which = f"{chosen} cases" if chosen == cases else f"{chosen} of {cases} cases"
        self._begun = self._monotonic()

    def case(self, number: int, plan: str) -> None:
        """Say which case is tried now and how long the rest will take, as soon as the first case tells."""
        self._tried = number - 1
        if not self._tried:
            return
        now = self._monotonic()
        each = (now - self._begun) / self._tried
        if not self._announced:
            if each * self._cases < _WORTH_SAYING:
                return
            self._announced, self._said = True, now
            self._say(f"explore: {self._which}, about {human_duration(each * self._cases)}")
        elif self._live or now - self._said >= _EVERY:
            self._said = now
            left = human_duration(each * (self._cases - self._tried))
            self._say(f"explore: case {number} of {self._cases} ({plan}), about {left} left")

    def interrupted(self) -> None:
        """Say what is known after all: the cases that were tried came to the same."""
        taken = human_duration(self._monotonic() - self._begun)
        self._clear()
        self._write(
            f"explore: interrupted after {taken}; {self._tried} of {self._cases} cases came to the same, "
            "the others were not tried\n"
        )

    def end(self) -> None:
        self._clear()

    def _say(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}" if self._live else f"{text}\n")

    def _clear(self) -> None:
        if self._live and self._announced:
            self._write("\r\x1b[K")
