"""Every node port of a Service is reserved, and every reservation has its Service."""

from __future__ import annotations

from setpoint.apiserver.allocation.node_ports import PREFIX, NodePorts, reservation
from setpoint.apiserver.allocation.service_ports import held_ports
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.loop import log
from setpoint.store.interface import CompareFailed, Delete, Op

EVERY = 180.0
_CAUSE = b'{"user":"system:apiserver","verb":"repair"}'


async def repair_ports(api: ApiServer, ports: NodePorts) -> None:
    held: dict[int, tuple[str, str]] = {}
    for entry in api.registry("", "services").cache.scan():
        meta = entry.obj["metadata"]
        owner = meta["namespace"], meta["name"]
        for port in held_ports(entry.obj.get("spec") or {}):
            if port not in ports.bands:
                log.warning("the node port %d of service %s/%s is not within %s", port, *owner, ports.text)
            elif held.setdefault(port, owner) != owner:
                log.warning("the node port %d is held by several services, %s/%s and %s/%s", port, *held[port], *owner)
    wrong: list[Op] = []
    for entry in ports.cache.scan():
        port = int(entry.key[len(PREFIX) :])
        owner_of = held.get(port)
        if owner_of is None:
            wrong.append(Delete(entry.key, entry.revision))
        elif entry.obj == {"namespace": owner_of[0], "name": owner_of[1]}:
            del held[port]
        else:
            wrong.append(reservation(port, *owner_of)._replace(expect=entry.revision))
            del held[port]
    wrong += [reservation(port, *owner) for port, owner in held.items()]
    for operation in wrong:
        try:
            await api.store.txn([operation], _CAUSE)
        except CompareFailed:
            continue  # it changed meanwhile; the next turn looks again
