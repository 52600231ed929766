"""Which Pods stand behind a Service, and which Services a change of a Pod is news to."""

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
    """One of those that its Pods have: enough to find it among thousands."""
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

    def behind(self, service: Obj) -> list[Obj]:
        """All that its selector matches."""
        selector = from_map(service["spec"]["selector"])
        candidates = self._pods.by_index(_BY_NAMESPACE, service["metadata"]["namespace"])
        return [pod for pod in candidates if selector.matches(pod["metadata"].get("labels") or {})]

    def concerned(self, old: Obj | None, new: Obj | None) -> list[str]:
        """Keys of the Services whose endpoints the change may change."""
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
    """What endpoints show of a Pod and what can change."""
    status = pod.get("status") or {}
    return ("deletionTimestamp" in pod["metadata"], is_ready(pod), is_over(pod), status.get("podIPs") or ())


def has_endpoints(service: Mapping[str, Any]) -> bool:
    """Whether its endpoints come from its selector: without one they are somebody else's business."""
    return bool(service["spec"].get("selector")) and service["spec"].get("type") != "ExternalName"


def is_headless(service: Mapping[str, Any]) -> bool:
    return (service["spec"].get("clusterIP") or "None") == "None"


def is_over(pod: Mapping[str, Any]) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def can_serve(pod: Mapping[str, Any], *, terminating: bool) -> bool:
    """Whether it is an endpoint at all, ready or not; those on their way out only if `terminating`."""
    status = pod.get("status") or {}
    if is_over(pod) or not (status.get("podIP") or status.get("podIPs")):
        return False
    return terminating or "deletionTimestamp" not in pod["metadata"]


def has_hostname(pod: Obj, service: Obj) -> bool:
    """Whether the Pod's own host name is to be found under the Service's name."""
    hostname, subdomain = _host(pod)
    return bool(hostname) and subdomain == service["metadata"]["name"]


def addresses_of(pod: Mapping[str, Any], family: str) -> list[str]:
    """Of `IPv4` or `IPv6`, in their usual form."""
    known = (_address(each.get("ip") or "") for each in (pod.get("status") or {}).get("podIPs") or ())
    return [address for address, of in known if of == family]


@lru_cache(1 << 16)
def _address(text: str) -> tuple[str, str]:
    """In its usual form, and the family that it is of. The same ones are asked for again and again."""
    address = parse_ip(text)
    return (str(address), f"IPv{address.version}") if address is not None else ("", "")


def target_port(pod: Mapping[str, Any], service_port: Mapping[str, Any]) -> int | None:
    """The port of the Pod that stands behind one of the Service; None if it has no port of that name."""
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
