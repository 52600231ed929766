"""The conversation `fleet`: all nodes and Pods of the cluster in one picture.

The server sends the layout as JSON, then the states of all Pods and what changes in them as binary frames
(`web/fleet/frames.py`), at most ten times a second. Messages of the server:

    {"type": "layout", "layout": 3, "stride": 128, "of": 5000, "from": 0, "nodes": [[name, zone, state, cordoned, n]]}
    {"type": "nodes", "layout": 3, "nodes": [[position, state, cordoned, n]]}    n: Pods of the node without a slot
    {"type": "loading", "pods": 4000, "of": 150000}                     until all Pods are known, then without `of`
    {"type": "tray", "count": 2, "pods": [[namespace/name, why]]}       Pods without a node
    {"type": "found", "query": "failing", "count": 7, "pods": [[index, namespace/name, node, state]]}
    {"type": "pod", "layout": 3, "index": 17, "name": "default/web", "node": "node-1", "state": 1}
    {"type": "names", "layout": 3, "nodes": [[position, [namespace/name or null, by slot]]]}

`name` is null if the slot is free, and `index` if no such Pod has a slot. Messages of the tab:

    {"search": "failing"}        selects what matches, until the next search; empty: nothing
    {"pick": 17}                 which Pod is at an index
    {"locate": "default/web"}    at which index a Pod is
    {"names": [4, 5]}            the names of the Pods of nodes by position, at most `MAX_NAMED` nodes
    {"tray": 100}                how many Pods without a node to list, at most `MAX_TRAY`
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from setpoint.meta.errors import BadRequest
from setpoint.tasks import first_completed
from setpoint.web.feed import Args, Conversation, PageContext, text_argument
from setpoint.web.fleet import frames
from setpoint.web.fleet.search import Found, Search
from setpoint.web.fleet.source import shared_source
from setpoint.web.fleet.state import FleetNode, FleetState, FleetViewer

_INTERVAL: Final = 0.1
"""Seconds between two frames at least."""
_LAYOUT_INTERVAL: Final = 0.5
"""Seconds between two layouts at least, while nodes come and go."""
_NODES_PER_MESSAGE: Final = 1_000
MAX_TRAY: Final = 1_000
MAX_NAMED: Final = 64
_MAX_QUERY: Final = 200


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    namespace = text_argument(args, "namespace", "")
    source = shared_source(ctx, namespace)
    state = source.state
    tab = _Tab(ctx, state, conversation)
    state.add_viewer(tab.viewer)
    try:
        await first_completed(source.run(ctx.client, ctx.clock), tab.send(), tab.receive())
    finally:
        state.remove_viewer(tab.viewer)


class _Tab:
    def __init__(self, ctx: PageContext, state: FleetState, conversation: Conversation) -> None:
        self.viewer = FleetViewer()
        self._clock = ctx.clock
        self._state = state
        self._conversation = conversation
        self._search = Search("")
        self._selected: bytearray | None = None
        """A byte for each slot of the layout, 1 if it matches the search; None without a search."""
        self._tray = 50
        self._loaded = False
        """Whether the tab knows that all Pods are there."""

    # -- to the tab -------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        viewer, state, clock = self.viewer, self._state, self._clock
        await self._until_known()
        laid_out = -_LAYOUT_INTERVAL
        while True:
            await viewer.wake.wait()
            viewer.wake.clear()
            began = clock.monotonic()
            if not state.is_laid_out and began - laid_out >= _LAYOUT_INTERVAL:
                state.lay_out()
                laid_out = began
            if viewer.is_stale and state.layout:
                await self._send_everything()
            elif viewer.changed:
                await self._send_changes()
            await self._send_others()
            if not state.is_laid_out:
                viewer.wake.set()
            if not self._loaded:
                self._loaded = state.is_loaded
                of = {} if self._loaded else {"of": state.expected}
                await self._conversation.send({"type": "loading", "pods": state.count, **of})
            await clock.sleep(max(0.0, _INTERVAL - (clock.monotonic() - began)))

    async def _until_known(self) -> None:
        """Wait until all Pods are known, or nodes have been for `_INTERVAL`: a layout without nodes would delay the
        next one by `_LAYOUT_INTERVAL`."""
        viewer, state = self.viewer, self._state

        async def loaded() -> None:
            while not state.is_loaded:
                await viewer.wake.wait()
                viewer.wake.clear()

        while not state.nodes and not state.is_loaded:
            await viewer.wake.wait()
            viewer.wake.clear()
        await first_completed(loaded(), self._clock.sleep(_INTERVAL))
        viewer.wake.set()

    async def _send_everything(self) -> None:
        viewer, state = self.viewer, self._state
        viewer.is_stale = False
        viewer.changed.clear()
        viewer.nodes.clear()
        layout, nodes = state.layout, state.order
        if self._search.query:
            self._selected = (await self._search.run(state)).bits
        for start in range(0, max(1, len(nodes)), _NODES_PER_MESSAGE):
            part = [[each.name, each.zone, *_node_facts(each)] for each in nodes[start : start + _NODES_PER_MESSAGE]]
            head = {"type": "layout", "layout": layout, "stride": state.stride, "of": len(nodes), "from": start}
            await self._conversation.send({**head, "nodes": part})
        if state.layout == layout:  # else it is sent again, with the next layout
            _, frame = await frames.everything(state, self._selected)
            await self._conversation.send_bytes(frame)

    async def _send_changes(self) -> None:
        changed, self.viewer.changed = self.viewer.changed, set()
        await self._conversation.send_bytes(frames.changes(self._state.layout, self._values(changed)))

    def _values(self, indexes: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the values of slots as this tab sees them, and update its selection."""
        selected = self._selected
        for index in indexes:
            node, slot = self._state.at(index)
            value, name = node.states[slot], node.names[slot]
            if selected is not None:
                selected[index] = name is not None and self._search.matches(node, name, value)
                value |= selected[index] and frames.SELECTED
            yield index, value

    async def _send_others(self) -> None:
        viewer = self.viewer
        if viewer.nodes:
            changed, viewer.nodes = viewer.nodes, set()
            rows = [[node.position, *_node_facts(node)] for node in changed if node.position >= 0]
            await self._conversation.send({"type": "nodes", "layout": self._state.layout, "nodes": rows})
        if viewer.tray_changed:
            viewer.tray_changed = False
            unbound = self._state.unbound
            pods = [[name, why] for name, why in islice(unbound.items(), self._tray)]
            await self._conversation.send({"type": "tray", "count": len(unbound), "pods": pods})

    # -- from the tab -----------------------------------------------------------------------------------------------

    async def receive(self) -> None:
        while True:
            asked = await self._conversation.receive()
            match asked:
                case {"search": str(query)} if len(query) <= _MAX_QUERY:
                    await self._find(query)
                case {"pick": int(index)}:
                    await self._conversation.send(self._picked(index))
                case {"locate": str(name)}:
                    found = self._state.index_of(name)
                    await self._conversation.send(
                        self._picked(found) if found is not None else {"type": "pod", "index": None, "name": name}
                    )
                case {"names": [*positions]} if len(positions) <= MAX_NAMED:
                    await self._conversation.send(self._named(positions))
                case {"tray": int(count)} if 0 < count <= MAX_TRAY:
                    self._tray = count
                    self.viewer.tray_changed = True
                    self.viewer.wake.set()
                case _:
                    raise BadRequest("the fleet understands search, pick, locate, names and tray")

    async def _find(self, query: str) -> None:
        self._search = search = Search(query)
        found = await search.run(self._state) if query.strip() else Found(0, [], bytearray())
        self._selected = found.bits if query.strip() else None
        self.viewer.is_stale = True
        self.viewer.wake.set()
        pods = [list(each) for each in found.pods]
        await self._conversation.send({"type": "found", "query": query, "count": found.total, "pods": pods})

    def _picked(self, index: int) -> dict[str, Any]:
        answer = {"type": "pod", "layout": self._state.layout, "index": index}
        try:
            node, slot = self._state.at(index)
        except IndexError:  # of another layout
            return {**answer, "name": None, "node": None, "state": 0}
        known = slot < len(node.names)
        name, value = (node.names[slot], node.states[slot]) if known else (None, 0)
        return {**answer, "name": name, "node": node.name, "state": value}

    def _named(self, positions: list[Any]) -> dict[str, Any]:
        order = self._state.order
        known = [each for each in positions if isinstance(each, int) and 0 <= each < len(order)]
        nodes = [[each, order[each].names] for each in known]
        return {"type": "names", "layout": self._state.layout, "nodes": nodes}


def _node_facts(node: FleetNode) -> tuple[int, bool, int]:
    return int(node.state), node.cordoned, len(node.extra)
