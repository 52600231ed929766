"""Render the model on a screen of a given size, with scrollable panels, and decode the keys of the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from rich.console import RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from setpoint.cli.watching.model import Change, EventLine, Model, Workload
from setpoint.meta.times import human_duration

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O[@-~]|.)|\x1b|.", re.DOTALL)
_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"g": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
    b"G": "end",
    b"\t": "next",
    b"\x1b[C": "next",
    b"\x1bOC": "next",
    b"\x1b[Z": "previous",
    b"\x1b[D": "previous",
    b"\x1bOD": "previous",
    b"q": "quit",
    b"Q": "quit",
    b"\x03": "quit",
    b"\x04": "quit",
}


def keys_of(data: bytes) -> list[str]:
    """Return the names of known keys; others are ignored."""
    return [_NAMES[each] for each in _SEQUENCE.findall(data) if each in _NAMES]


T = TypeVar("T")
_GOOD = {"Running", "Succeeded"}
_FLEETING = {"Pending", "Terminating", "NotReady"}
_BAR = 12
_NAME = 22
"""Columns that the name of a workload keeps on a narrow terminal, if it needs them."""
_PANELS = ("desired against observed", "what changed, by whom", "events")


@dataclass(slots=True)
class View:
    """The selected panel, and the scroll offset of each."""

    focus: int = 0
    first: list[int] = field(default_factory=lambda: [0] * len(_PANELS))
    rows: list[int] = field(default_factory=lambda: [1] * len(_PANELS))
    """The number of visible rows of each panel when it was last drawn."""
    total: list[int] = field(default_factory=lambda: [0] * len(_PANELS))
    """The total number of rows of each panel."""
    presses: int = 0
    """The number of keys pressed."""

    def press(self, key: str) -> None:
        """Handle a key of `keys`."""
        self.presses += 1
        at = self.focus
        if key in ("next", "previous"):
            self.focus = (at + (1 if key == "next" else -1)) % len(_PANELS)
            return
        page = max(1, self.rows[at] - 1)
        steps = {
            "up": -1,
            "down": 1,
            "page up": -page,
            "page down": page,
            "home": -self.total[at],
            "end": self.total[at],
        }
        self.first[at] += steps.get(key, 0)
        self._bound(at)

    def window(self, at: int, rows: Sequence[T], lines: int) -> Sequence[T]:
        """Return the visible rows of a panel of this many lines."""
        self.rows[at], self.total[at] = lines, len(rows)
        self._bound(at)
        return rows[self.first[at] : self.first[at] + lines]

    def title(self, at: int) -> str:
        first, lines, total = self.first[at], self.rows[at], self.total[at]
        hidden = f" ({first + 1}-{min(first + lines, total)} of {total})" if total > lines else ""
        return _PANELS[at] + hidden

    def _bound(self, at: int) -> None:
        self.first[at] = max(0, min(self.first[at], self.total[at] - self.rows[at]))


def draw(model: Model, view: View, where: str, now: datetime, height: int) -> RenderableType:
    """Return the whole screen, for a terminal of this height."""
    layout = Layout()
    below = max(4, height // 3)
    lines = max(1, height - 3 - below - 2)
    layout.split_column(Layout(_head(model, where), size=3), Layout(name="middle"), Layout(name="events", size=below))
    layout["middle"].split_row(Layout(name="workloads"), Layout(name="changes"))

    def panel(
        at: int, rows: Sequence[T], space: int, drawn: Callable[[Sequence[T], datetime], RenderableType]
    ) -> Panel:
        shown = drawn(view.window(at, rows, space), now)
        return Panel(shown, title=view.title(at), title_align="left", border_style="cyan" if view.focus == at else "")

    layout["workloads"].update(panel(0, model.workloads(now), lines, _workloads))
    layout["changes"].update(panel(1, list(reversed(model.changes)), lines, _changes))
    layout["events"].update(panel(2, list(reversed(model.events)), below - 2, _events))
    return layout


def _head(model: Model, where: str) -> RenderableType:
    ready, nodes = model.nodes()
    text = Text.assemble(
        (where, "bold"), "   nodes ", _count(ready, nodes), "   pods ", no_wrap=True, overflow="ellipsis"
    )
    for state, count in sorted(model.pods().items()):
        style = "green" if state in _GOOD else "yellow" if state in _FLEETING else "red"
        text.append(f"{count} {state}  ", style)
    return Panel(text, padding=(0, 1), subtitle="arrows scroll  tab switches  q leaves", subtitle_align="right")


def _count(observed: int, desired: int) -> tuple[str, str]:
    return f"{observed}/{desired}", "green" if observed == desired else "yellow"


def _workloads(workloads: Sequence[Workload], _: datetime) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    # On a narrow terminal the notes and bars give way: without its name a row says nothing.
    table.add_column(min_width=min(_NAME, max((len(one.name) for one in workloads), default=0)))
    for one in workloads:
        met = one.observed == one.desired
        share = min(1.0, one.observed / one.desired) if one.desired else 1.0
        full = round(share * _BAR)
        bar = Text("█" * full + "░" * (_BAR - full), "green" if met else "yellow")
        counts, style = _count(one.observed, one.desired)
        table.add_row(_cut(one.name), bar, Text(counts, style), _cut(one.note, "dim"))
    return table if workloads else Text("no workloads in this namespace", "dim")


def _changes(changes: Sequence[Change], now: datetime) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for change in changes:
        table.add_row(_age(change.when, now), _cut(change.what), Text(change.how, "cyan"), _cut(change.who, "dim"))
    return table


def _events(events: Sequence[EventLine], now: datetime) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for event in events:
        style = "yellow" if event.warning else ""
        table.add_row(_age(event.when, now), _cut(event.about), _cut(event.reason, style), _cut(event.message, style))
    return table


def _age(when: datetime, now: datetime) -> Text:
    return Text(human_duration(max(0.0, (now - when).total_seconds())), "dim")


def _cut(text: str, style: str = "") -> Text:
    """Return one line, truncated at the end of the column and without control characters."""
    shown = "".join(char if char.isprintable() else "�" for char in text)
    return Text(shown, style, no_wrap=True, overflow="ellipsis")
