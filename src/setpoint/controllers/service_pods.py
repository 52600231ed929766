"""Finds the Pods of a Service, the Services that a Pod change concerns, and when the change happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from setpoint.client.resources import builtin
from setpoint.controllers.pods import is_ready, phase
from setpoint.meta.conditions import condition_of
from setpoint.meta.names import parse_ip
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import from_map
from setpoint.reconcile import Informer, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod, Service

SERVICES = builtin("services")
HEADLESS = "service.kubernetes.io/headless"
LAST_CHANGE = "endpoints.kubernetes.io/last-change-trigger-time"
_BY_LABEL = "selected label"


def _one_label(service: Service) -> tuple[str, ...]:
    """Return one label of the selector as an index value, which is selective enough among thousands."""
    if not has_endpoints(service):
        return ()
    name, value = min(service["spec"]["selector"].items())
    return (f"{service['metadata']['namespace']}/{name}={value}",)


class ServicePods:
    def __init__(self, services: Informer[Service], pods: Informer[Pod]) -> None:
        self._services = services
        self._pods = pods
        services.add_index(_BY_LABEL, _one_label)

    def pods_of(self, service: Service) -> list[Pod]:
        """Return all Pods that the Service's selector matches."""
        selector = from_map(service["spec"]["selector"])
        candidates = self._pods.in_namespace(service["metadata"]["namespace"])
        return [pod for pod in candidates if selector.matches(pod["metadata"].get("labels") or {})]

    def affected_services(self, old: Pod | None, new: Pod | None) -> list[str]:
        """Return the keys of the Services whose endpoints the change may affect."""
        if old is None or new is None:
            return list(self._matching(new or old or {}))
        after = self._matching(new)
        before = after if old["metadata"].get("labels") == new["metadata"].get("labels") else self._matching(old)
        if not before and not after:
            return []  # most Pods belong to no Service
        if _as_endpoint(old) != _as_endpoint(new) or _host(old) != _host(new):
            return list({**before, **after})
        return [key for key in {**before, **after} if (key in before) != (key in after)]

    def _matching(self, pod: Pod) -> dict[str, None]:
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        return {
            key_of(service): None
            for name, value in labels.items()
            for service in self._services.by_index(_BY_LABEL, f"{namespace}/{name}={value}")
            if service["spec"]["selector"].items() <= labels.items()
        }


def _host(pod: Pod) -> tuple[str, str]:
    return pod["spec"].get("hostname") or "", pod["spec"].get("subdomain") or ""


def _as_endpoint(pod: Pod) -> tuple[object, ...]:
    """Return the mutable fields of a Pod that endpoints show."""
    status = pod.get("status") or {}
    return ("deletionTimestamp" in pod["metadata"], is_ready(pod), _is_finished(pod), status.get("podIPs") or ())


def has_endpoints(service: Service) -> bool:
    """Return whether the Service's endpoints are managed by its selector."""
    return bool(service["spec"].get("selector")) and service["spec"].get("type") != "ExternalName"


def is_headless(service: Service) -> bool:
    return (service["spec"].get("clusterIP") or "None") == "None"


def _is_finished(pod: Pod) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def can_serve(pod: Pod, *, terminating: bool) -> bool:
    """Return whether the Pod is an endpoint, ready or not; Pods being deleted are included only with `terminating`."""
    status = pod.get("status") or {}
    if _is_finished(pod) or not (status.get("podIP") or status.get("podIPs")):
        return False
    return terminating or "deletionTimestamp" not in pod["metadata"]


def has_hostname(pod: Pod, service: Service) -> bool:
    """Return whether the Pod's hostname is published under the Service's name."""
    hostname, subdomain = _host(pod)
    return bool(hostname) and subdomain == service["metadata"]["name"]


def addresses_of(pod: Pod, family: str) -> list[str]:
    """Return the Pod's addresses of the family `IPv4` or `IPv6` in canonical form."""
    known = (_address(each.get("ip") or "") for each in (pod.get("status") or {}).get("podIPs") or ())
    return [address for address, of in known if of == family]


@lru_cache(1 << 16)
def _address(text: str) -> tuple[str, str]:
    """Return the address in canonical form and its family. Cached, because the same addresses are parsed repeatedly."""
    address = parse_ip(text)
    return (str(address), f"IPv{address.version}") if address is not None else ("", "")


def target_port(pod: Pod, service_port: Mapping[str, Any]) -> int | None:
    """Return the Pod's port number for a Service port, or None if the Pod has no port of that name."""
    target = service_port.get("targetPort")
    if isinstance(target, int):
        return target
    sidecars = (each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always")
    for container in (*pod["spec"]["containers"], *sidecars):
        for port in container.get("ports") or ():
            if port.get("name") == target and port.get("protocol", "TCP") == service_port.get("protocol", "TCP"):
                return int(port["containerPort"])
    return None


def target_reference(pod: Pod) -> Obj:
    meta = pod["metadata"]
    return {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}


# -- trigger times ----------------------------------------------------------------------------------------------------


class TriggerTimes:
    """Tracks the times of changes per Service.

    Times are compared as text, in the one UTC format that objects use. The state only serves an annotation; after a
    restart it falls back to the creation time of the Service.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, dict[str, str]]] = {}

    def since(self, key: str, service: Service, pods: Iterable[Pod]) -> str:
        """Return the earliest change since the previous call, or an empty string if nothing with a time changed."""
        before = self._seen.get(key)
        made = service["metadata"].get("creationTimestamp") or ""
        now = {pod["metadata"]["name"]: stamp for pod in pods if (stamp := _ready_since(pod))}
        self._seen[key] = made, now
        if before is None:
            return made
        changed = [stamp for name, stamp in now.items() if stamp > before[1].get(name, "")]
        if made > before[0]:
            changed.append(made)
        return min(changed, default="")

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)


def _ready_since(pod: Pod) -> str:
    return (condition_of(pod, "Ready") or {}).get("lastTransitionTime") or ""


def with_trigger_time(annotations: dict[str, str] | None, stamp: str) -> dict[str, str]:
    remaining = {key: value for key, value in (annotations or {}).items() if key != LAST_CHANGE}
    return {**remaining, LAST_CHANGE: stamp} if stamp else remaining
