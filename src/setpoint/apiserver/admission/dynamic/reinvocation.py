"""Two rounds of changes: whoever wants gets to see an object once more if somebody changed it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from setpoint.apiserver.admission.plugin import Attributes, Reinvocation


@dataclass(slots=True)
class Round:
    """What the second round needs to know of the first."""

    output: bytes = b""
    called: set[str] = field(default_factory=set)
    """Those that want to be called again, since the last change."""
    again: set[str] = field(default_factory=set)
    """Those after whom something changed."""

    def changed(self) -> None:
        self.again |= self.called
        self.called = set()


def round_of(attrs: Attributes, plugin: str) -> tuple[Reinvocation, Round]:
    if attrs.reinvocation is None:
        attrs.reinvocation = Reinvocation()
    state: Round = attrs.reinvocation.state.setdefault(plugin, Round())
    if attrs.reinvocation.running and state.output != _text(attrs):
        state.changed()
    return attrs.reinvocation, state


def end_round(attrs: Attributes, state: Round) -> None:
    state.output = _text(attrs)


def _text(attrs: Attributes) -> bytes:
    return orjson.dumps(attrs.obj, option=orjson.OPT_SORT_KEYS)
