"""Progress reports of an exploration: the number of cases, the estimated duration, and the current case."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.times import human_duration

_MIN_ANNOUNCED = 2.0
"""Seconds below which a run is not announced."""
_EVERY = 30.0
"""Seconds between two lines on an output that cannot rewrite lines."""


class Progress:
    """Writes one line that is rewritten on a terminal, or a line at intervals on other outputs."""

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
        """Set the number of chosen cases and of all cases."""
        self._cases = chosen
        self._which = f"{chosen} cases" if chosen == cases else f"{chosen} of {cases} cases"
        self._begun = self._monotonic()

    def case(self, number: int, plan: str) -> None:
        """Report the current case and, after the first case, the estimated remaining time."""
        self._tried = number - 1
        if not self._tried:
            return
        now = self._monotonic()
        each = (now - self._begun) / self._tried
        if not self._announced:
            if each * self._cases < _MIN_ANNOUNCED:
                return
            self._announced, self._said = True, now
            self._say(f"explore: {self._which}, about {human_duration(each * self._cases)}")
        elif self._live or now - self._said >= _EVERY:
            self._said = now
            left = human_duration(each * (self._cases - self._tried))
            self._say(f"explore: case {number} of {self._cases} ({plan}), about {left} left")

    def interrupted(self) -> None:
        """Report the cases that were tried without a difference."""
        taken = human_duration(self._monotonic() - self._begun)
        self._clear()
        self._write(
            f"explore: interrupted after {taken}; {self._tried} of {self._cases} cases reached the same end state, "
            "the others were not tried\n"
        )

    def end(self) -> None:
        self._clear()

    def _say(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}" if self._live else f"{text}\n")

    def _clear(self) -> None:
        if self._live and self._announced:
            self._write("\r\x1b[K")
