"""Reconciles, and what they claim about the reason of their writes (`meta/cause.py`)."""

from __future__ import annotations

from setpoint.client.current_run import current_run
from setpoint.meta.cause import MAX_REASON_LENGTH, Claim, RunClaim, claim_header

_MAX_KEY_LENGTH = 320


class Run:
    """A reconcile: its key and triggers, the reason of its writes, and its outcome."""

    # One is made for every reconcile: what most runs do not set has its initial value in the class.

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
        """Make a run without a reason. `process` distinguishes runs of this process from those of an earlier one, and
        `number` is the running number in the controller and process."""
        self.parts: RunClaim = (controller, process, number, key, triggers, count, besides, "")
        """The claim of its next write. A write notes it as it is, so it is replaced as a whole."""
        self.began = began
        """When it began, in seconds of the monotonic clock."""

    @property
    def id(self) -> str:
        controller, process, number, *_ = self.parts
        return f"{controller}/{process}.{number}"

    @property
    def number(self) -> int:
        return self.parts[2]

    @property
    def key(self) -> str:
        return self.parts[3]

    @property
    def triggers(self) -> tuple[int, ...]:
        """The revisions that triggered the run, ascending."""
        return self.parts[4]

    @property
    def count(self) -> int:
        """How many triggers there were, if more than are listed; else 0."""
        return self.parts[5]

    @property
    def besides(self) -> str:
        """A trigger that is not a revision (`Claim.besides`); empty if there is none."""
        return self.parts[6]

    @property
    def reason(self) -> str:
        """The controller's own sentence about its next writes."""
        return self.parts[7]

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.key[:_MAX_KEY_LENGTH], self.triggers, self.count, self.besides, self.reason)

    def because(self, reason: str) -> None:
        """Set the reason of the next writes, in one short sentence."""
        reason = reason[:MAX_REASON_LENGTH]
        parts = self.parts
        if reason != parts[7]:
            self.parts = (*parts[:7], reason)
            self._header = None

    def act_on(self, revision: int) -> None:
        """Set the revision that triggers the next writes, if the queue does not know it."""
        parts = self.parts
        self.parts = (*parts[:4], (revision,), 0, *parts[6:])
        self._header = self._for_events = None

    def note(self, besides: str, reason: str = "") -> None:
        """Set the trigger that is not a revision, and the reason of the next writes."""
        parts = self.parts
        if besides != parts[6]:
            self.parts = (*parts[:6], besides, parts[7])
            self._header = self._for_events = None
        self.because(reason)

    def for_events(self) -> Run:
        """Return this run without its reason, for the Events that it records: they have messages of their own."""
        if self._for_events is None:
            self._for_events = Run(*self.parts[:7])
        return self._for_events

    def claim_write(self) -> str:
        """Count a write that is sent now, and return the value of its header."""
        self.writes += 1
        if self._header is None:
            self._header = claim_header(self.claim)
        return self._header

    def claim_write_in_process(self) -> RunClaim:
        """Count a write that is sent to a server of this process, and return what it claims."""
        self.writes += 1
        return self.parts


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
