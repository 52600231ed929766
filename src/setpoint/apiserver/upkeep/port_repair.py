"""Every node port of a Service is reserved, and every reservation has its Service."""

from __future__ import annotations

from setpoint.apiserver.allocation.node_ports import PREFIX, NodePorts, reservation
from setpoint.apiserver.allocation.service_ports import held_ports
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.loop import log
from setpoint.store.interface import CompareFailed, Delete, Op

EVERY = 180.0
_RUNS_BEFORE_CLEANUP = 3
"""How often in a row a reservation must be found wrong before it is changed, as upstream. Reservations and Services
are read from two caches: one may show a write that the other does not show yet."""
_CAUSE = b'{"user":"system:apiserver","verb":"repair"}'

Owner = tuple[str, str]
"""Namespace and name of a Service."""


class PortRepair:
    def __init__(self, api: ApiServer, ports: NodePorts) -> None:
        self._api = api
        self._ports = ports
        self._wrong: dict[str, tuple[int, int]] = {}
        """Reservations found wrong by the last repair: by key, the revision and the number of consecutive findings."""

    async def run(self) -> None:
        """Look at all node ports once, and put right what is due."""
        held = self._held()
        wrong: dict[str, tuple[int, int]] = {}
        operations: list[Op] = []
        for entry in self._ports.cache.scan():
            port = int(entry.key[len(PREFIX) :])
            owner = held.pop(port, None)
            if owner is not None and entry.obj == {"namespace": owner[0], "name": owner[1]}:
                continue
            revision, times = self._wrong.get(entry.key, (entry.revision, 0))
            times = times + 1 if revision == entry.revision else 1
            if times < _RUNS_BEFORE_CLEANUP:
                wrong[entry.key] = entry.revision, times
            elif owner is None:
                operations.append(Delete(entry.key, entry.revision))
            else:
                operations.append(reservation(port, *owner)._replace(expect=entry.revision))
        self._wrong = wrong
        operations += [reservation(port, *owner) for port, owner in held.items()]
        for operation in operations:
            try:
                await self._api.store.txn([operation], _CAUSE)
            except CompareFailed:
                continue  # it changed meanwhile; the next run looks again

    def _held(self) -> dict[int, Owner]:
        """Map each node port to the Service that holds it."""
        held: dict[int, Owner] = {}
        ports = self._ports
        for entry in self._api.registry("", "services").cache.scan():
            meta = entry.obj["metadata"]
            owner = meta["namespace"], meta["name"]
            for port in held_ports(entry.obj.get("spec") or {}):
                if port not in ports.bands:
                    log.warning("the node port %d of service %s/%s is not within %s", port, *owner, ports.text)
                elif held.setdefault(port, owner) != owner:
                    log.warning(
                        "the node port %d is held by several services, %s/%s and %s/%s", port, *held[port], *owner
                    )
        return held
