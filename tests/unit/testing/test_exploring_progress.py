"""Progress reports of an exploration that takes minutes."""

from __future__ import annotations

import pytest

from setpoint.testing.exploring import Exploration, Progress
from setpoint.view.fault_plan import Plan


class RecordedProgress:
    def __init__(self, live: bool) -> None:
        self.now = 100.0
        self.text = ""
        self.progress = Progress(self._write, lambda: self.now, live=live)

    def _write(self, text: str) -> None:
        self.text += text

    def printed(self) -> str:
        text, self.text = self.text, ""
        return text


def test_estimate_and_progress_are_printed() -> None:
    watched = RecordedProgress(live=False)
    watched.progress.begin(200, 736)
    for number in range(1, 64):
        watched.progress.case(number, "crash-after:7")
        watched.now += 0.5
    assert watched.printed() == (
        "explore: 200 of 736 cases, about 100s\n"  # after the first case
        "explore: case 62 of 200 (crash-after:7), about 69s left\n"  # then a line every 30 seconds
    )
    watched.progress.end()
    assert watched.printed() == ""


def test_on_a_terminal_one_line_is_rewritten() -> None:
    watched = RecordedProgress(live=True)
    watched.progress.begin(10, 10)
    watched.progress.case(1, "error:1")
    watched.now += 1
    watched.progress.case(2, "error:2")
    assert watched.printed() == "\r\x1b[Kexplore: 10 cases, about 10s"
    watched.now += 1
    watched.progress.case(3, "error:3")
    assert watched.printed() == "\r\x1b[Kexplore: case 3 of 10 (error:3), about 8s left"
    watched.progress.end()
    assert watched.printed() == "\r\x1b[K"


@pytest.mark.parametrize("live", [True, False])
def test_a_short_exploration_prints_nothing(live: bool) -> None:
    watched = RecordedProgress(live)
    watched.progress.begin(10, 10)
    for number in range(1, 11):
        watched.progress.case(number, "x")
        watched.now += 0.01
    watched.progress.end()
    assert watched.printed() == ""


def test_an_interruption_prints_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = RecordedProgress(live=False)
    cases = [Plan.parse(f"error:{number}") for number in range(1, 6)]

    class NoFaults:
        steps = (object(),)
        state: dict[str, object] = {}

    def under(_: Exploration, plan: Plan) -> NoFaults:
        watched.now += 1
        if str(plan) == "error:3":
            raise KeyboardInterrupt
        return NoFaults()

    monkeypatch.setattr(Exploration, "__init__", lambda self: None)
    monkeypatch.setattr(Exploration, "baseline", NoFaults())
    monkeypatch.setattr(Exploration, "under", under)
    monkeypatch.setattr(Exploration, "differences", lambda self, ending: "")
    monkeypatch.setattr(Exploration, "_cases", lambda self, templates: iter(cases))
    monkeypatch.setattr(Exploration, "_size", lambda self, plan: 0)
    with pytest.raises(KeyboardInterrupt):
        Exploration().explore(progress=watched.progress)  # type: ignore[call-arg]
    assert watched.printed() == (
        "explore: 5 cases, about 5s\n"
        "explore: interrupted after 3s; 2 of 5 cases reached the same end state, the others were not tried\n"
    )
