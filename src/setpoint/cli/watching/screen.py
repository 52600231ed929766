"""The model as a screen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from setpoint.cli.watching.model import Change, Model, Told, Wish
from setpoint.meta.times import human_duration

_GOOD = {"Running", "Succeeded"}
_FLEETING = {"Pending", "Terminating", "NotReady"}
_BAR = 12


def draw(model: Model, where: str, now: datetime, height: int) -> RenderableType:
    """All of it, for a terminal of this height."""
    layout = Layout()
    below = max(6, height // 3)
    layout.split_column(Layout(_head(model, where), size=3), Layout(name="middle"), Layout(name="events", size=below))
    layout["middle"].split_row(Layout(name="wishes"), Layout(name="changes"))
    room = max(1, height - 3 - below - 3)
    layout["wishes"].update(Panel(_wishes(model.wishes(), room), title="desired against observed", title_align="left"))
    layout["changes"].update(
        Panel(_changes(model.changes, room, now), title="what changed, by whom", title_align="left")
    )
    layout["events"].update(Panel(_events(model.events, below - 2, now), title="events", title_align="left"))
    return layout


def _head(model: Model, where: str) -> RenderableType:
    ready, nodes = model.nodes()
    text = Text.assemble((where, "bold"), "   nodes ", _count(ready, nodes), "   pods ")
    for state, count in sorted(model.pods().items()):
        style = "green" if state in _GOOD else "yellow" if state in _FLEETING else "red"
        text.append(f"{count} {state}  ", style)
    text.append("   q leaves", "dim")
    return Panel(text, padding=(0, 1))


def _count(observed: int, desired: int) -> tuple[str, str]:
    return f"{observed}/{desired}", "green" if observed == desired else "yellow"


def _wishes(wishes: list[Wish], room: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for wish in wishes[:room]:
        met = wish.observed == wish.desired
        share = min(1.0, wish.observed / wish.desired) if wish.desired else 1.0
        full = round(share * _BAR)
        bar = Text("█" * full + "░" * (_BAR - full), "green" if met else "yellow")
        counts, style = _count(wish.observed, wish.desired)
        table.add_row(Text(wish.name), bar, Text(counts, style), Text(wish.note, "dim"))
    if len(wishes) > room:
        return Group(table, Text(f"… and {len(wishes) - room} more", "dim"))
    return table if wishes else Text("nothing is wished for", "dim")


def _changes(changes: Iterable[Change], room: int, now: datetime) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for change in reversed(list(changes)[-room:]):
        age = human_duration((now - change.when).total_seconds())
        table.add_row(Text(age, "dim"), Text(change.what), Text(change.how, "cyan"), Text(change.who, "dim"))
    return table


def _events(events: Iterable[Told], room: int, now: datetime) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for told in reversed(list(events)[-room:]):
        age = human_duration((now - told.when).total_seconds())
        style = "yellow" if told.warning else ""
        message = "".join(char if char.isprintable() else "�" for char in told.message)
        table.add_row(Text(age, "dim"), Text(told.about), Text(told.reason, style), Text(message, style, no_wrap=True))
    return table
