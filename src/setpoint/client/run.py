"""Reconciles, and what they claim about the reason of their writes (`meta/cause.py`)."""

from __future__ import annotations

from typing import Any

from setpoint.client.current_run import current_run
from setpoint.meta.cause import MAX_REASON_LENGTH, Claim, claim_header

_MAX_KEY_LENGTH = 320


class Run:
    """A reconcile: its key and triggers, the reason of its writes, and its outcome."""

    # One is made for every reconcile: what most runs do not set has its initial value in the class.

    reason = ""
    """The controller's own sentence about its next writes."""
    ended: float | None = None
    """When it ended, in seconds of the monotonic clock; None while it runs."""
    error = ""
    """The error with which it ended; empty if it succeeded."""
    writes = 0
    """The number of writes that it has sent."""
    _header: str | None = None
    _for_events: Run | None = None

    def __init__(
        self,
        controller: str,
        process: str,
        number: int,
        key: str,
        triggers: tuple[int, ...] = (),
        count: int = 0,
        besides: str = "",
        began: float = 0.0,
    ) -> None:
        self.controller = controller
        self.process = process
        """Distinguishes runs of this process from those of an earlier one."""
        self.number = number
        """The running number in the controller and process."""
        self.key = key
        self.triggers = triggers
        """The revisions that triggered the run, ascending."""
        self.count = count
        """How many triggers there were, if more than are listed; else 0."""
        self.besides = besides
        """A trigger that is not a revision (`Claim.besides`); empty if there is none."""
        self.began = began
        """When it began, in seconds of the monotonic clock."""

    @property
    def id(self) -> str:
        return f"{self.controller}/{self.process}.{self.number}"

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.key[:_MAX_KEY_LENGTH], self.triggers, self.count, self.besides, self.reason)

    def because(self, reason: str) -> None:
        """Set the reason of the next writes, in one short sentence."""
        reason = reason[:MAX_REASON_LENGTH]
        if reason != self.reason:
            self.reason = reason
            self._header = None

    def act_on(self, revision: int) -> None:
        """Set the revision that triggers the next writes, if the queue does not know it."""
        self.triggers, self.count = (revision,), 0
        self._header = self._for_events = None

    def note(self, besides: str, reason: str = "") -> None:
        """Set the trigger that is not a revision, and the reason of the next writes."""
        if besides != self.besides:
            self.besides = besides
            self._header = self._for_events = None
        self.because(reason)

    def for_events(self) -> Run:
        """Return this run without its reason, for the Events that it records: they have messages of their own."""
        if self._for_events is None:
            same = Run(self.controller, self.process, self.number, self.key, self.triggers, self.count, self.besides)
            self._for_events = same
        return self._for_events

    def claim_write(self) -> str:
        """Count a write that is sent now, and return the value of its header."""
        self.writes += 1
        if self._header is None:
            self._header = claim_header(self.claim)
        return self._header

    def claim_write_in_process(self) -> tuple[Any, ...]:
        """Count a write that is sent to a server of this process, and return the arguments of `run_claim_values`."""
        self.writes += 1
        return (
            self.controller,
            self.process,
            self.number,
            self.key,
            self.triggers,
            self.count,
            self.besides,
            self.reason,
        )


class PersonalRun(Run):
    """The reason of writes that a person makes, such as the undo of a write: no reconcile is named."""

    def __init__(self, reason: str) -> None:
        super().__init__("", "", 0, "")
        self.because(reason)

    @property
    def claim(self) -> Claim:
        return Claim(reason=self.reason)


def because(reason: str) -> None:
    """Set the reason of the next writes of the current run, in one short sentence: `2 Pods exist, 3 are wanted`. It has
    no effect outside of a run."""
    run = current_run.get()
    if run is not None:
        run.because(reason)
