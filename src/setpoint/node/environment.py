"""The variables that a container is started with, as the kubelet composes them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.node.downward import field_value, resource_value
from setpoint.node.runtime.expansion import expand

if TYPE_CHECKING:
    from setpoint.node.pod_status import Situation
    from setpoint.node.tools import Lookup

Obj = Mapping[str, Any]

_MASTER_SERVICES = ("kubernetes",)


class EnvironmentProblem(Exception):
    """The container cannot be configured; the message is the kubelet's."""


def data_of(obj: Obj, secret: bool) -> dict[str, str]:
    if not secret:
        return {**(obj.get("data") or {}), **_decoded(obj.get("binaryData"))}
    return _decoded(obj.get("data"))


def _decoded(data: Mapping[str, str] | None) -> dict[str, str]:
    return {key: b64decode(value).decode(errors="surrogateescape") for key, value in (data or {}).items()}


def check_environment(pod: Obj, container: Obj, lookup: Lookup) -> None:
    """Raises EnvironmentProblem when something is missing that the container cannot do without."""
    if container.get("envFrom") or any(each.get("valueFrom") for each in container.get("env") or ()):
        _Composer(pod, container, None, lookup).compose()


def compose_environment(pod: Obj, container: Obj, situation: Situation, lookup: Lookup) -> dict[str, str]:
    return _Composer(pod, container, situation, lookup).compose()


class _Composer:
    def __init__(self, pod: Obj, container: Obj, situation: Situation | None, lookup: Lookup) -> None:
        self._pod = pod
        self._container = container
        self._situation = situation
        self._lookup = lookup
        self._namespace: str = pod["metadata"]["namespace"]

    def compose(self) -> dict[str, str]:
        services = self._services()
        found: dict[str, str] = {}
        for source in self._container.get("envFrom") or ():
            prefix = source.get("prefix") or ""
            for secret, key in ((False, "configMapRef"), (True, "secretRef")):
                reference = source.get(key)
                if reference is None:
                    continue
                obj = self._object(reference, secret)
                for name, text in data_of(obj, secret).items() if obj is not None else ():
                    found[prefix + name] = text
        for entry in self._container.get("env") or ():
            value = self._value(entry, found, services)
            if value is not None:
                found[entry["name"]] = value
        return {**services, **found}

    def _value(self, entry: Obj, found: dict[str, str], services: dict[str, str]) -> str | None:
        if entry.get("value"):
            return expand(entry["value"], found, services)
        source = entry.get("valueFrom")
        if not source:
            return ""
        if source.get("fieldRef"):
            return field_value(self._pod, source["fieldRef"].get("fieldPath", ""), self._situation)
        if source.get("resourceFieldRef"):
            return resource_value(self._pod, self._container, source["resourceFieldRef"], self._situation)
        for secret, key, kind in ((False, "configMapKeyRef", "ConfigMap"), (True, "secretKeyRef", "Secret")):
            reference = source.get(key)
            if reference is None:
                continue
            obj = self._object(reference, secret)
            if obj is None:
                return None
            value = data_of(obj, secret).get(reference["key"])
            if value is None and not reference.get("optional"):
                where = f"{self._namespace}/{reference.get('name', '')}"
                raise EnvironmentProblem(f"couldn't find key {reference['key']} in {kind} {where}")
            return value
        return ""

    def _object(self, reference: Obj, secret: bool) -> Obj | None:
        name = reference.get("name", "")
        find = self._lookup.secret if secret else self._lookup.config_map
        obj = find(self._namespace, name)
        if obj is None and not reference.get("optional"):
            raise EnvironmentProblem(f'{"secret" if secret else "configmap"} "{name}" not found')
        return obj

    def _services(self) -> dict[str, str]:
        """Where the Services are: of the Pod's own namespace if it wants them, and the API server's always."""
        if self._situation is None:
            return {}
        found: dict[str, str] = {}
        for service in self._lookup.services("default"):
            if service["metadata"]["name"] in _MASTER_SERVICES:
                found |= service_variables(service)
        if self._pod["spec"].get("enableServiceLinks", True):
            for service in self._lookup.services(self._namespace):
                found |= service_variables(service)
        return found


def service_variables(service: Obj) -> dict[str, str]:
    address = service["spec"].get("clusterIP") or ""
    ports = service["spec"].get("ports") or ()
    if not address or address == "None" or not ports:
        return {}
    prefix = _variable(service["metadata"]["name"])
    found = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0]["port"])}
    host = f"[{address}]" if ":" in address else address
    for port in ports:
        if port.get("name"):
            found[f"{prefix}_SERVICE_PORT_{_variable(port['name'])}"] = str(port["port"])
    for number, port in enumerate(ports):
        protocol = (port.get("protocol") or "TCP").lower()
        url = f"{protocol}://{host}:{port['port']}"
        if number == 0:
            found[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{port['port']}_{protocol.upper()}"
        found |= {link: url, f"{link}_PROTO": protocol, f"{link}_PORT": str(port["port"]), f"{link}_ADDR": address}
    return found


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
