"""A cache of owners that do not exist, so that not every dependent must ask the server."""

from __future__ import annotations

from collections import OrderedDict

from setpoint.controllers.garbagecollector.identity import Identity


class AbsentOwners:
    """A bounded LRU set. Uids are never reused, so entries do not become stale."""

    def __init__(self, most: int = 500) -> None:
        self._most = most
        self._found: OrderedDict[Identity, None] = OrderedDict()

    def add(self, owner: Identity) -> None:
        self._found[owner] = None
        self._found.move_to_end(owner)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def __contains__(self, owner: Identity) -> bool:
        if owner not in self._found:
            return False
        self._found.move_to_end(owner)
        return True
