"""The objects that the network is made of, from the fleet's own copies; EndpointSlices are watched on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from setpoint.client.resources import builtin
from setpoint.node.network.dns import Endpoint
from setpoint.reconcile import Informer, Manager

Obj = Mapping[str, Any]

_SERVICES, _SLICES = builtin("services"), builtin("endpointslices", "discovery.k8s.io")
_SERVICE_LABEL = "kubernetes.io/service-name"
_ADDRESS, _NAMESPACE, _NODE_PORT, _SERVICE = "address", "namespace", "node port", "service"
_LONGEST_WAIT = 5.0
"""Seconds for which a Pod waits for the first list of EndpointSlices; without it no Service is reached."""


class Directory:
    def __init__(self, manager: Manager) -> None:
        self._services = manager.informer(_SERVICES)
        self._services.add_index(_NAMESPACE, lambda service: (service["metadata"]["namespace"],))
        self._services.add_index(_ADDRESS, _addresses)
        self._services.add_index(_NODE_PORT, _node_ports)
        self._slices = Informer(manager.client, _SLICES, manager.clock)
        self._slices.add_index(_SERVICE, _service_of)
        self._clock = manager.clock
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        await self._wanted.wait()
        await self._slices.run()

    def want(self) -> None:
        self._wanted.set()

    @property
    def ready(self) -> bool:
        return self._slices.synced.is_set()

    async def prepared(self) -> None:
        """Return when EndpointSlices are known, or after a few seconds without them."""
        self.want()
        if self.ready:
            return
        waiting = asyncio.ensure_future(self._slices.synced.wait())
        limit = asyncio.ensure_future(self._clock.sleep(_LONGEST_WAIT))
        try:
            await asyncio.wait((waiting, limit), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (waiting, limit):
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each

    # -- Names --------------------------------------------------------------------------------------------------------

    def service(self, namespace: str, name: str) -> Obj | None:
        return self._services.get(f"{namespace}/{name}")

    def services_at(self, address: str) -> Iterable[Obj]:
        return self._services.by_index(_ADDRESS, address)

    def services_on_node_port(self, port: int) -> Iterable[Obj]:
        return self._services.by_index(_NODE_PORT, str(port))

    def has_services(self, namespace: str) -> bool:
        return bool(self._services.by_index(_NAMESPACE, namespace))

    def endpoints(self, namespace: str, service: str) -> list[Endpoint]:
        found: dict[str, Endpoint] = {}
        for each in self._slices.by_index(_SERVICE, f"{namespace}/{service}"):
            if each.get("addressType") == "FQDN":
                continue
            ports = tuple(
                (port.get("name") or "", port.get("protocol") or "TCP", int(port["port"]))
                for port in each.get("ports") or ()
                if port.get("port") is not None
            )
            for endpoint in each.get("endpoints") or ():
                made = _endpoint(endpoint, ports)
                found.setdefault(f"{made.address} {ports}", made)
        return [found[key] for key in sorted(found)]


def _endpoint(endpoint: Obj, ports: tuple[tuple[str, str, int], ...]) -> Endpoint:
    conditions = endpoint.get("conditions") or {}
    return Endpoint(
        str(endpoint["addresses"][0]),
        endpoint.get("hostname") or "",
        endpoint.get("nodeName") or "",
        conditions.get("ready") is not False,
        bool(conditions.get("serving")) and bool(conditions.get("terminating")),
        ports,
    )


def _addresses(service: Obj) -> list[str]:
    spec, balancer = service["spec"], (service.get("status") or {}).get("loadBalancer") or {}
    found = [spec.get("clusterIP"), *(spec.get("clusterIPs") or ()), *(spec.get("externalIPs") or ())]
    found += [each.get("ip") for each in balancer.get("ingress") or ()]
    return [*dict.fromkeys(each for each in found if each and each != "None")]


def _node_ports(service: Obj) -> list[str]:
    return [str(each["nodePort"]) for each in service["spec"].get("ports") or () if each.get("nodePort")]


def _service_of(piece: Obj) -> tuple[str, ...]:
    meta = piece["metadata"]
    name = (meta.get("labels") or {}).get(_SERVICE_LABEL)
    return (f"{meta['namespace']}/{name}",) if name else ()
