"""The availability of APIServices: those of this server are always available, others are probed through their
Service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.internal_writes import update
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.kinds.bootstrap.initial_objects import local_status
from setpoint.meta.conditions import new_condition, with_condition
from setpoint.meta.objects import Obj

GROUP, PLURAL = "apiregistration.k8s.io", "apiservices"
PROBE_INTERVAL = 30.0

Probe = Callable[[Obj, Obj], Awaitable[str]]
"""Requests the discovery document of the server behind an APIService and its Service; returns "" or what went wrong."""


class ApiServices:
    """Maintains the condition Available of APIServices."""

    def __init__(self, api: ApiResources, probe: Probe | None = None) -> None:
        self._api = api
        self._probe = probe
        self._services = api.registry("", "services")
        self._slices = api.registry("discovery.k8s.io", "endpointslices").cache
        self._cache = api.registry(GROUP, PLURAL).cache
        self.loop = KeyedLoop("API services", api.clock, self.sync)
        self._remote: dict[str, tuple[str, str]] = {}
        """The Service (namespace, name) of each APIService that has one."""
        self.loop.follow(self._cache, self._api_service_keys)
        self.loop.follow(self._services.cache, self._keys_of_service)
        self.loop.follow(self._slices, self._keys_of_service)

    async def recheck(self) -> None:
        """Probe again: the state behind a Service can change without a change of an object."""
        self.loop.due(*self._remote)

    def _api_service_keys(self, entry: Entry) -> list[str]:
        name, service = entry.obj["metadata"]["name"], entry.obj["spec"].get("service")
        if service is None:
            self._remote.pop(name, None)
        else:
            self._remote[name] = service.get("namespace", ""), service.get("name", "")
        return [name]

    def _keys_of_service(self, entry: Entry) -> list[str]:
        if not self._remote:
            return []
        meta = entry.obj["metadata"]
        name = (meta.get("labels") or {}).get("kubernetes.io/service-name") or meta["name"]
        return [key for key, service in self._remote.items() if service == (meta["namespace"], name)]

    async def sync(self, name: str) -> None:
        entry = self._cache.get(self._cache.prefix + name)
        if entry is None:
            self._remote.pop(name, None)
            return
        condition = await self._condition(entry.obj)

        def change(obj: Obj) -> None:
            status = obj.setdefault("status", {})
            status["conditions"] = with_condition(status.get("conditions") or [], condition)

        before = (entry.obj.get("status") or {}).get("conditions") or []
        if with_condition(before, condition) != before:
            await update(self._api, GROUP, PLURAL, "", name, change, subresource="status")

    async def _condition(self, obj: Obj) -> Obj:
        now = self._api.clock.now()
        if obj["spec"].get("service") is None:
            local: Obj = local_status(now)["conditions"][0]
            return local
        reason, message = await self._check(obj)
        status = "False" if reason else "True"
        return new_condition("Available", status, reason or "Passed", message or "all checks passed", now)

    async def _check(self, obj: Obj) -> tuple[str, str]:
        wanted = obj["spec"]["service"]
        namespace, name, port = wanted.get("namespace", ""), wanted.get("name", ""), wanted.get("port", 443)
        shown = f'service/{name} in "{namespace}"'
        service = self._services.cache.get(self._services.key(namespace, name))
        if service is None:
            return "ServiceNotFound", f"{shown} is not present"
        spec = service.obj["spec"]
        if spec.get("type") == "ClusterIP":
            found = next((p for p in spec.get("ports") or () if p.get("port") == port), None)
            if found is None:
                return "ServicePortError", f"{shown} is not listening on port {port}"
            slices = [entry.obj for entry in self._slices.scan(namespace) if _of_service(entry.obj, name)]
            if not slices:
                return "EndpointsNotFound", f"cannot find endpointslices for {shown}"
            port_name = found.get("name", "")
            if not any(_serves(one, port_name) for one in slices):
                return "MissingEndpoints", f'endpointslices for {shown} have no addresses with port name "{port_name}"'
        if self._probe is None:
            return "FailedDiscoveryCheck", "this server does not forward requests to other API servers"
        text = await self._probe(obj, service.obj)
        return ("FailedDiscoveryCheck", text) if text else ("", "")


def _of_service(endpoint_slice: Obj, name: str) -> bool:
    return bool((endpoint_slice["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name)


def _serves(endpoint_slice: Obj, port_name: str) -> bool:
    if not any((e.get("conditions") or {}).get("ready", True) for e in endpoint_slice.get("endpoints") or ()):
        return False
    return any(p.get("name", "") == port_name and p.get("port") for p in endpoint_slice.get("ports") or ())
