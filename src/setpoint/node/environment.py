"""Builds a container's environment variables, with the downward API and `$(NAME)` expansion, as the kubelet does."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING

from setpoint.meta.goformat import quote
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import NANO, parse

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod, Service
    from setpoint.node.dependencies import ObjectLister
    from setpoint.node.pod_status import PodState


_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
_MASTER_SERVICES = ("kubernetes",)
"""Services of the namespace `default` whose variables every container gets."""


def expand(text: str, *sources: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the value in the first source that has it, and `$$` by a dollar sign. Unknown references
    stay."""
    if "$" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        for source in sources:
            if found[2] in source:
                return source[found[2]]
        return found[0]

    return _REFERENCE.sub(value, text)


def field_value(pod: Pod, path: str, pod_state: PodState | None) -> str:
    """Return the value of a field that the downward API supports; empty for other fields and without a value."""
    meta: ObjView = pod["metadata"]
    spec: ObjView = pod["spec"]
    keyed = _SUBSCRIPT.fullmatch(path)
    if keyed is not None:
        return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(meta.get(path.partition(".")[2], ""))
        case "metadata.labels" | "metadata.annotations":
            entries = meta.get(path.partition(".")[2]) or {}
            return "\n".join(f"{key}={quote(entries[key])}" for key in sorted(entries))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.partition(".")[2], ""))
        case "status.hostIP":
            return pod_state.host_ip if pod_state is not None else ""
        case "status.hostIPs":
            return ",".join(pod_state.host_ips or (pod_state.host_ip,)) if pod_state is not None else ""
        case "status.podIP":
            return pod_state.pod_ips[0] if pod_state is not None and pod_state.pod_ips else ""
        case "status.podIPs":
            return ",".join(pod_state.pod_ips) if pod_state is not None else ""
    return ""


def resource_value(pod: Pod, container: ObjView, reference: ObjView, pod_state: PodState | None) -> str:
    """Return an amount in whole multiples of the divisor, rounded up. A limit that is not set is the node's allocatable
    amount."""
    name = reference.get("containerName")
    if name:
        containers = [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]
        container = next((each for each in containers if each["name"] == name), container)
    which, _, resource = str(reference.get("resource", "")).partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(which) or {}).get(resource)
    if amount is None and which == "limits" and pod_state is not None:
        amount = pod_state.allocatable.get(resource)
    divisor = parse(str(reference.get("divisor") or "1")).nano or NANO
    nano = parse(amount).nano if amount is not None else 0
    return str(-(-nano // divisor))


class ContainerConfigError(Exception):
    """The container cannot be configured; the message is the kubelet's."""


def decoded_data(obj: ObjView, secret: bool) -> dict[str, str]:
    """Return the data of a Secret or ConfigMap as text."""
    if not secret:
        return {**(obj.get("data") or {}), **_decoded(obj.get("binaryData"))}
    return _decoded(obj.get("data"))


def _decoded(data: Mapping[str, str] | None) -> dict[str, str]:
    return {key: b64decode(value).decode(errors="surrogateescape") for key, value in (data or {}).items()}


def check_environment(pod: Pod, container: ObjView, lister: ObjectLister) -> None:
    """Raise ContainerConfigError if a reference that is not optional cannot be resolved."""
    if container.get("envFrom") or any(each.get("valueFrom") for each in container.get("env") or ()):
        _EnvironmentBuilder(pod, container, None, lister).build()


def build_environment(pod: Pod, container: ObjView, pod_state: PodState, lister: ObjectLister) -> dict[str, str]:
    return _EnvironmentBuilder(pod, container, pod_state, lister).build()


class _EnvironmentBuilder:
    """Builds the variables of one container; without a Pod state it only checks the references."""

    def __init__(self, pod: Pod, container: ObjView, pod_state: PodState | None, lister: ObjectLister) -> None:
        self._pod = pod
        self._container = container
        self._pod_state = pod_state
        self._lister = lister
        self._namespace: str = pod["metadata"]["namespace"]

    def build(self) -> dict[str, str]:
        services = self._services()
        found: dict[str, str] = {}
        for source in self._container.get("envFrom") or ():
            prefix = source.get("prefix") or ""
            for secret, key in ((False, "configMapRef"), (True, "secretRef")):
                reference = source.get(key)
                if reference is None:
                    continue
                obj = self._object(reference, secret)
                for name, text in decoded_data(obj, secret).items() if obj is not None else ():
                    found[prefix + name] = text
        for entry in self._container.get("env") or ():
            value = self._value(entry, found, services)
            if value is not None:
                found[entry["name"]] = value
        return {**services, **found}

    def _value(self, entry: ObjView, found: dict[str, str], services: dict[str, str]) -> str | None:
        if entry.get("value"):
            return expand(entry["value"], found, services)
        source = entry.get("valueFrom")
        if not source:
            return ""
        if source.get("fieldRef"):
            return field_value(self._pod, source["fieldRef"].get("fieldPath", ""), self._pod_state)
        if source.get("resourceFieldRef"):
            return resource_value(self._pod, self._container, source["resourceFieldRef"], self._pod_state)
        for secret, key, kind in ((False, "configMapKeyRef", "ConfigMap"), (True, "secretKeyRef", "Secret")):
            reference = source.get(key)
            if reference is None:
                continue
            obj = self._object(reference, secret)
            if obj is None:
                return None
            value = decoded_data(obj, secret).get(reference["key"])
            if value is None and not reference.get("optional"):
                where = f"{self._namespace}/{reference.get('name', '')}"
                raise ContainerConfigError(f"couldn't find key {reference['key']} in {kind} {where}")
            return value
        return ""

    def _object(self, reference: ObjView, secret: bool) -> ObjView | None:
        name = reference.get("name", "")
        find = self._lister.secret if secret else self._lister.config_map
        obj = find(self._namespace, name)
        if obj is None and not reference.get("optional"):
            raise ContainerConfigError(f'{"secret" if secret else "configmap"} "{name}" not found')
        return obj

    def _services(self) -> dict[str, str]:
        """Return the variables of the API server's Service and, if the Pod enables service links, of those in its
        namespace."""
        if self._pod_state is None:
            return {}
        found: dict[str, str] = {}
        for service in self._lister.services("default"):
            if service["metadata"]["name"] in _MASTER_SERVICES:
                found |= _service_variables(service)
        if self._pod["spec"].get("enableServiceLinks", True):
            for service in self._lister.services(self._namespace):
                found |= _service_variables(service)
        return found


def _service_variables(service: Service) -> dict[str, str]:
    address = service["spec"].get("clusterIP") or ""
    ports = service["spec"].get("ports") or ()
    if not address or address == "None" or not ports:
        return {}
    prefix = _variable_name(service["metadata"]["name"])
    found = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0]["port"])}
    host = f"[{address}]" if ":" in address else address
    for port in ports:
        if port.get("name"):
            found[f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}"] = str(port["port"])
    for number, port in enumerate(ports):
        protocol = (port.get("protocol") or "TCP").lower()
        url = f"{protocol}://{host}:{port['port']}"
        if number == 0:
            found[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{port['port']}_{protocol.upper()}"
        found |= {link: url, f"{link}_PROTO": protocol, f"{link}_PORT": str(port["port"]), f"{link}_ADDR": address}
    return found


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
