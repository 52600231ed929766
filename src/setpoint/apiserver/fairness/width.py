"""How many seats a list takes: one for each 100 kB that it moves, so that a large one counts as what it is."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import Access
from setpoint.apiserver.request import truthy
from setpoint.apiserver.watch_cache import ResourceCache

_BYTES = 100_000
_AT_ONCE = 1_000_000
"""More is not held at once: what is longer goes out in pieces."""
_MOST = 100
_LOOKED_AT = 8
_SMALL = 20
"""So few objects are hardly worth a second look."""


def width_of(call: Call, access: Access, widest: int, caches: Mapping[str, ResourceCache]) -> int:
    """Of a list or a watch, on a level on which no request takes more than `widest` (0: any number)."""
    if access.name or (call.verb == "watch" and not _begins_with_a_list(call)):
        return 1
    cache = caches.get(f"{access.group or 'core'}/{access.resource}/")
    count = len(cache) if cache is not None else 0
    limit = call.option("limit")
    if limit.isdecimal() and len(limit) < 10 and 0 < int(limit) < count:
        count = int(limit)
    if cache is None or count <= _SMALL:
        return 1
    sizes = [len(entry.value) for entry in islice(cache.scan(), _LOOKED_AT)]
    moved = min(count * sum(sizes) // len(sizes), _AT_ONCE)
    return max(1, min(-(-moved // _BYTES), widest or _MOST, _MOST))


def _begins_with_a_list(call: Call) -> bool:
    return truthy(call.option("sendInitialEvents", "false")) or call.option("resourceVersion") in ("", "0")
