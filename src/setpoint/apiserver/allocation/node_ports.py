"""Node ports: each one in use is a key of the store that names its Service."""

from __future__ import annotations

import orjson

from setpoint.apiserver.allocation.cluster_ips import AllocationError, RangeFull
from setpoint.apiserver.allocation.ranges import Bands, port_bands
from setpoint.apiserver.watch_cache import Entry, ResourceCache
from setpoint.meta.clock import Ids
from setpoint.store.interface import Delete, Op, Put, Store

PREFIX = "ranges/nodeports/"
_DRY_RUN_FIRST = 32769


class NodePorts:
    """What is reserved, as the store has it."""

    def __init__(self, store: Store, ids: Ids, text: str) -> None:
        """`text`: `30000-32767`."""
        low, _, high = text.partition("-")
        self.bands: Bands = port_bands(int(low), int(high))
        self.text = text
        self.cache = ResourceCache(PREFIX, store, namespaced=False)
        self._ids = ids

    def entry(self, port: int) -> Entry | None:
        return self.cache.get(f"{PREFIX}{port}")

    def choose(self, also_taken: set[int]) -> int | None:
        return self.bands.choose(
            self._ids,
            lambda port: port in also_taken or self.entry(port) is not None,
            lambda: also_taken | {int(entry.key[len(PREFIX) :]) for entry in self.cache.scan()},
        )


def reservation(port: int, namespace: str, name: str) -> Put:
    return Put(f"{PREFIX}{port}", orjson.dumps({"namespace": namespace, "name": name}), 0)


def belongs_to(entry: Entry, namespace: str, name: str) -> bool:
    return bool(entry.obj == {"namespace": namespace, "name": name})


class PortChanges:
    """What one write of a Service takes and gives back; nothing happens before `operations` are committed."""

    def __init__(self, ports: NodePorts, dry_run: bool) -> None:
        self._ports = ports
        self._dry_run = dry_run
        self._taken: set[int] = set()
        self._freed: set[int] = set()

    def take(self, port: int) -> None:
        """Raises AllocationError."""
        if not self._dry_run and port not in self._ports.bands:
            text = f"provided port is not in the valid range. The range of valid ports is {self._ports.text}"
            raise AllocationError(text)
        if port in self._taken or self._ports.entry(port) is not None:
            raise AllocationError("provided port is already allocated")
        self._taken.add(port)

    def take_any(self) -> int:
        """Raises RangeFull."""
        if self._dry_run:
            port: int | None = max(self._taken, default=_DRY_RUN_FIRST - 1) + 1
        else:
            port = self._ports.choose(self._taken)
        if port is None:
            raise RangeFull
        self._taken.add(port)
        return port

    def give_back(self, port: int) -> None:
        self._freed.add(port)

    def operations(self, namespace: str, name: str) -> list[Op]:
        if self._dry_run:
            return []
        operations: list[Op] = [reservation(port, namespace, name) for port in sorted(self._taken)]
        for port in sorted(self._freed - self._taken):
            entry = self._ports.entry(port)
            if entry is not None and belongs_to(entry, namespace, name):
                operations.append(Delete(entry.key, entry.revision))
        return operations
