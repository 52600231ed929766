"""Finds the Pods of a Service, and the Services that a Pod change concerns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.pods import is_ready, phase
from setpoint.meta.names import parse_ip
from setpoint.meta.selectors import from_map
from setpoint.reconcile import Informer, key_of

Obj = dict[str, Any]

SERVICES = builtin("services")
HEADLESS = "service.kubernetes.io/headless"
LAST_CHANGE = "endpoints.kubernetes.io/last-change-trigger-time"
_BY_NAMESPACE, _BY_LABEL = "namespace", "selected label"


def _namespace(obj: Obj) -> tuple[str]:
    return (obj["metadata"].get("namespace") or "",)


def _one_label(service: Obj) -> tuple[str, ...]:
    """Return one label of the selector as an index value, which is selective enough among thousands."""
    if not has_endpoints(service):
        return ()
    name, value = min(service["spec"]["selector"].items())
    return (f"{service['metadata']['namespace']}/{name}={value}",)


class ServicePods:
    def __init__(self, services: Informer, pods: Informer) -> None:
        self._services = services
        self._pods = pods
        services.add_index(_BY_LABEL, _one_label)
        pods.add_index(_BY_NAMESPACE, _namespace)

    def pods_of(self, service: Obj) -> list[Obj]:
        """Return all Pods that the Service's selector matches."""
        selector = from_map(service["spec"]["selector"])
        candidates = self._pods.by_index(_BY_NAMESPACE, service["metadata"]["namespace"])
        return [pod for pod in candidates if selector.matches(pod["metadata"].get("labels") or {})]

    def affected_services(self, old: Obj | None, new: Obj | None) -> list[str]:
        """Return the keys of the Services whose endpoints the change may affect."""
        if old is None or new is None:
            return list(self._matching(new or old or {}))
        same_matches = old["metadata"].get("labels") == new["metadata"].get("labels") and _host(old) == _host(new)
        changed = _as_endpoint(old) != _as_endpoint(new)
        if same_matches:
            return list(self._matching(new)) if changed else []
        before, after = self._matching(old), self._matching(new)
        if changed or _host(old) != _host(new):
            return list({**before, **after})
        return [key for key in {**before, **after} if (key in before) != (key in after)]

    def _matching(self, pod: Obj) -> dict[str, None]:
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        return {
            key_of(service): None
            for name, value in labels.items()
            for service in self._services.by_index(_BY_LABEL, f"{namespace}/{name}={value}")
            if service["spec"]["selector"].items() <= labels.items()
        }


def _host(pod: Obj) -> tuple[str, str]:
    return pod["spec"].get("hostname") or "", pod["spec"].get("subdomain") or ""


def _as_endpoint(pod: Obj) -> tuple[object, ...]:
    """Return the mutable fields of a Pod that endpoints show."""
    status = pod.get("status") or {}
    return ("deletionTimestamp" in pod["metadata"], is_ready(pod), is_finished(pod), status.get("podIPs") or ())


def has_endpoints(service: Mapping[str, Any]) -> bool:
    """Return whether the Service's endpoints are managed by its selector."""
    return bool(service["spec"].get("selector")) and service["spec"].get("type") != "ExternalName"


def is_headless(service: Mapping[str, Any]) -> bool:
    return (service["spec"].get("clusterIP") or "None") == "None"


def is_finished(pod: Mapping[str, Any]) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def can_serve(pod: Mapping[str, Any], *, terminating: bool) -> bool:
    """Return whether the Pod is an endpoint, ready or not; Pods being deleted are included only with `terminating`."""
    status = pod.get("status") or {}
    if is_finished(pod) or not (status.get("podIP") or status.get("podIPs")):
        return False
    return terminating or "deletionTimestamp" not in pod["metadata"]


def has_hostname(pod: Obj, service: Obj) -> bool:
    """Return whether the Pod's hostname is published under the Service's name."""
    hostname, subdomain = _host(pod)
    return bool(hostname) and subdomain == service["metadata"]["name"]


def addresses_of(pod: Mapping[str, Any], family: str) -> list[str]:
    """Return the Pod's addresses of the family `IPv4` or `IPv6` in canonical form."""
    known = (_address(each.get("ip") or "") for each in (pod.get("status") or {}).get("podIPs") or ())
    return [address for address, of in known if of == family]


@lru_cache(1 << 16)
def _address(text: str) -> tuple[str, str]:
    """Return the address in canonical form and its family. Cached, because the same addresses are parsed repeatedly."""
    address = parse_ip(text)
    return (str(address), f"IPv{address.version}") if address is not None else ("", "")


def target_port(pod: Mapping[str, Any], service_port: Mapping[str, Any]) -> int | None:
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


def target_reference(pod: Mapping[str, Any]) -> Obj:
    meta = pod["metadata"]
    return {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
