"""Finds Pods by words: parts of their names, `ns:default`, `node:node-1`, `zone:a`, or a state such as `failing`.

A Pod must match all words. The words of one query are at most `MAX_WORDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from setpoint.meta.errors import BadRequest
from setpoint.view.fleet import PodState
from setpoint.web.fleet.state import FleetNode, FleetState

MAX_WORDS: Final = 8
MAX_LISTED: Final = 200
_NODES_AT_ONCE: Final = 50
STATES: Final[Mapping[str, PodState]] = {state.name.lower(): state for state in PodState}

_Condition = Callable[[FleetNode, str, int], bool]


class FoundPod(NamedTuple):
    place: int
    """Its index."""
    name: str
    """The Pod, as `namespace/name`."""
    node: str
    state: int


class Found(NamedTuple):
    """The result of a search."""

    total: int
    pods: list[FoundPod]
    """The first `MAX_LISTED`."""
    bits: bytearray
    """A byte for each index of the layout: 1 if its Pod matches."""


class Search:
    def __init__(self, query: str) -> None:
        """Raises BadRequest if the query has too many words."""
        words = query.lower().split()
        if len(words) > MAX_WORDS:
            raise BadRequest(f"a search may have at most {MAX_WORDS} words")
        self.query = query
        self._conditions = [_condition(word) for word in words]

    def matches(self, node: FleetNode, name: str, state: int) -> bool:
        return bool(self._conditions) and all(each(node, name, state) for each in self._conditions)

    async def run(self, fleet: FleetState) -> Found:
        """Search all Pods with a slot, while others run in between.

        If the layout changes meanwhile, the result is that of the last one: the indexes are valid when this returns."""
        while True:
            layout = fleet.layout
            bits = bytearray(len(fleet.order) * fleet.stride)
            pods: list[FoundPod] = []
            count = 0
            for node in fleet.order:
                if node.position % _NODES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                    if fleet.layout != layout:
                        break
                first = node.position * fleet.stride
                for slot, name in enumerate(node.names):
                    if name is not None and self.matches(node, name, node.states[slot]):
                        bits[first + slot] = 1
                        count += 1
                        if len(pods) < MAX_LISTED:
                            pods.append(FoundPod(first + slot, name, node.name, node.states[slot]))
            if fleet.layout == layout:
                return Found(count, pods, bits)


def _condition(word: str) -> _Condition:
    kind, colon, value = word.partition(":")
    if colon and kind in ("ns", "namespace"):
        return lambda node, name, state: name.startswith(f"{value}/")
    if colon and kind == "node":
        return lambda node, name, state: value in node.name
    if colon and kind == "zone":
        return lambda node, name, state: node.zone == value
    if word in STATES:
        wanted = STATES[word]
        return lambda node, name, state: state == wanted
    return lambda node, name, state: word in name
