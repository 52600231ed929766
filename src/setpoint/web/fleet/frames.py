"""The binary frames of the fleet, all numbers little-endian.

    all      u8 0, 3 unused bytes, u32 layout, u32 stride, u32 number of nodes, then one byte for each slot, raw deflate
    changes  u8 1, 3 unused bytes, u32 layout, u32 n, then n times u32 index, then n times u8 value

A value is a `PodState`, 0 for a free slot, with the bit `SELECTED` if the Pod matches the search of the tab.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from setpoint.web.fleet.state import FleetNode, FleetState

SELECTED: Final = 0x80
_ALL, _CHANGES = 0, 1
_HEAD_OF_ALL: Final = struct.Struct("<B3xIII")
_HEAD_OF_CHANGES: Final = struct.Struct("<B3xII")
_NODES_AT_ONCE: Final = 500
_LEVEL: Final = 1
"""Level of compression: higher ones take several times as long for a tenth less."""


async def everything(fleet: FleetState, selected: bytearray | None) -> tuple[int, bytes]:
    """Return the number of a layout and its frame, made while others run in between.

    `selected` has a byte for each slot, 1 if it is selected. What changes meanwhile may or may not be in the frame."""
    layout, stride, nodes = fleet.layout, fleet.stride, fleet.order
    parts = [_HEAD_OF_ALL.pack(_ALL, layout, stride, len(nodes))]
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    for start in range(0, len(nodes), _NODES_AT_ONCE):
        parts.append(packing.compress(_rows(nodes[start : start + _NODES_AT_ONCE], stride, selected, start * stride)))
        await asyncio.sleep(0)
    parts.append(packing.flush())
    return layout, b"".join(parts)


def _rows(nodes: Sequence[FleetNode], stride: int, selected: bytearray | None, first: int) -> bytes:
    rows = b"".join(bytes(node.states[:stride]).ljust(stride, b"\0") for node in nodes)
    if selected is None:
        return rows
    bits = selected[first : first + len(rows)].ljust(len(rows), b"\0")
    # One operation on large integers is much faster than a loop over the bytes.
    mixed = int.from_bytes(rows, "little") | int.from_bytes(bits, "little") << 7
    return mixed.to_bytes(len(rows), "little")


def changes(layout: int, changed: Iterable[tuple[int, int]]) -> bytes:
    """Return the frame of changed slots, each an index and a value."""
    indexes, values = array("I"), bytearray()
    for index, value in changed:
        indexes.append(index)
        values.append(value)
    if sys.byteorder == "big":
        indexes.byteswap()
    return _HEAD_OF_CHANGES.pack(_CHANGES, layout, len(values)) + indexes.tobytes() + bytes(values)
