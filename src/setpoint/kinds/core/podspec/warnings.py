"""Warnings about pod specs that are valid but probably not intended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from setpoint.kinds.core.podspec.annotations import APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD
from setpoint.kinds.core.podspec.scheduling import PREFERRED, REQUIRED
from setpoint.kinds.core.podspec.security import containers_with_path
from setpoint.meta.goformat import quote
from setpoint.meta.names import label_value, parse_ip
from setpoint.meta.node_labels import ARCH, DEPRECATED, OS
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import milli_value

Place = tuple[str, str]
"""Path and its source; the latter may be empty."""


def _overlapping_path_warnings(volumes: Sequence[ObjView]) -> list[str]:
    found: list[str] = []
    for volume in volumes:
        name = volume.get("name", "")
        for kind, what in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
            source = volume.get(kind)
            if source and source.get("items"):
                title = _TITLES[kind]
                shown = f"{title} {quote(source.get(what, ''))}" if what else title
                found += _overlaps([(item.get("path", ""), "") for item in source["items"]], name, shown)
        if "projected" in volume:
            places: list[Place] = []
            for projection in volume["projected"].get("sources") or ():
                if not projection:
                    found.append(f"volume {quote(name)} (Projected) has no sources provided")
                    continue
                places += _projected_places(projection)
            found += _overlaps(places, name, "Projected")
    return found


_TITLES = {"configMap": "ConfigMap", "secret": "Secret", "downwardAPI": "DownwardAPI"}


def _projected_places(projection: ObjView) -> list[Place]:
    for kind, title in _TITLES.items():
        source = projection.get(kind)
        if source and source.get("items"):
            shown = title if kind == "downwardAPI" else f"{title} {quote(source.get('name', ''))}"
            return [(item.get("path", ""), shown) for item in source["items"]]
    if "serviceAccountToken" in projection:
        return [(projection["serviceAccountToken"].get("path", ""), "ServiceAccountToken")]
    if "clusterTrustBundle" in projection:
        bundle = projection["clusterTrustBundle"]
        name = bundle["name"] if "name" in bundle else bundle.get("signerName", "")
        return [(bundle.get("path", ""), f"ClusterTrustBundle {quote(name)}")]
    if "podCertificate" in projection:
        paths = (("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle"))
        certificate = projection["podCertificate"]
        return [(certificate[key], f"PodCertificate {text}") for key, text in paths if certificate.get(key)]
    return []


def _shown(place: Place) -> str:
    return f"{quote(place[0])} ({place[1]})" if place[1] else quote(place[0])


def _overlaps(places: Sequence[Place], volume: str, source: str) -> list[str]:
    found: list[str] = []
    before: list[Place] = []
    for path, origin in places:
        place = (path.rstrip("/"), origin)
        if place[0]:
            inner = place[0] + "/"
            for other in before:
                outer = other[0] + "/"
                if other[0] and (outer.startswith(inner) or inner.startswith(outer)):
                    body = f"{_shown(place)} with {_shown(other)}"
                    found.append(f"volume {quote(volume)} ({source}): overlapping paths: {body}")
        before.append(place)
    return found


DEPRECATED_NODE_LABELS = {
    **{
        deprecated: f'deprecated since {"v1.14" if label in (ARCH, OS) else "v1.17"}; use "{label}" instead'
        for deprecated, label in DEPRECATED.items()
    },
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "ephemeral": "",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_NO_MATCH = "a null labelSelector results in matching no pod"
_OLD_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
OLD_APP_ARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'


def pod_template_warnings(template: ObjView | None, path: str) -> list[str]:
    """Return the warnings of the template at `path`, e.g. `spec.template`."""
    if not template:
        return []
    return _warnings(template.get("spec") or {}, template.get("metadata") or {}, path)


def pod_warnings(pod: ObjView) -> list[str]:
    return _warnings(pod.get("spec") or {}, pod.get("metadata") or {}, "")


def _warnings(spec: ObjView, meta: ObjView, path: str) -> list[str]:
    """Return the warnings; an empty path means a Pod."""
    prefix = f"{path}." if path else ""
    at = f"{prefix}spec"
    annotations = meta.get("annotations") or {}
    found: list[str] = []
    for label in spec.get("nodeSelector") or ():
        if label in DEPRECATED_NODE_LABELS:
            found.append(f"{at}.nodeSelector[{label}]: {DEPRECATED_NODE_LABELS[label]}")
    affinity = spec.get("affinity")
    if affinity:
        found += _node_affinity_warnings(affinity.get("nodeAffinity") or {}, f"{at}.affinity.nodeAffinity")
    for i, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        where, key = f"{at}.topologySpreadConstraints[{i}]", constraint.get("topologyKey", "")
        if key in DEPRECATED_NODE_LABELS:
            found.append(f"{where}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}")
        if "labelSelector" not in constraint:
            found.append(f"{where}.labelSelector: {_NO_MATCH}")
    if annotations:
        for name, text in _ANNOTATIONS.items():
            if name in annotations:
                found.append(f"{prefix}metadata.annotations[{name}]: {text}")
    if "volumes" in spec:
        found += _volume_warnings(spec["volumes"], f"{at}.volumes")
        found += _overlapping_path_warnings(spec["volumes"])
    found += _duplicates(spec.get("hostAliases", ()), "ip", f"{at}.hostAliases")
    secrets = spec.get("imagePullSecrets", ())
    found += _duplicates(secrets, "name", f"{at}.imagePullSecrets")
    for i, secret in enumerate(secrets):
        if not secret.get("name"):
            found.append(f'{at}.imagePullSecrets[{i}].name: invalid empty name ""')
    if "overhead" in spec:
        for resource in ("memory", "ephemeral-storage"):
            found += _fractional_warning(spec["overhead"], resource, f"{at}.overhead")
    context = spec.get("securityContext") or {}
    if SECCOMP_POD in annotations and "seccompProfile" not in context:
        found.append(f"{prefix}metadata.annotations[{SECCOMP_POD}]: {_OLD_SECCOMP}")
    has_ports = False
    for container, where in containers_with_path(spec, at):
        found += _container_warnings(container, where, annotations, prefix, context, in_template=bool(path))
        has_ports = has_ports or "ports" in container
    if has_ports:
        found += _port_warnings(spec, at)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        found.append(f"{at}.terminationGracePeriodSeconds: {text}")
    if affinity:
        found += _pod_affinity_warnings(affinity, f"{at}.affinity")
    for i, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers", ())):
        found += ip_warnings(server, f"{at}.dnsConfig.nameservers[{i}]")
    for i, alias in enumerate(spec.get("hostAliases", ())):
        found += ip_warnings(alias.get("ip", ""), f"{at}.hostAliases[{i}].ip")
    return found


def _node_selector_term_warnings(term: ObjView, path: str, *, check_values: bool) -> list[str]:
    found = []
    for i, expression in enumerate(term.get("matchExpressions", ())):
        key = expression.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            found.append(f"{path}.matchExpressions[{i}].key: {key} is {DEPRECATED_NODE_LABELS[key]}")
        if check_values:
            for j, value in enumerate(expression.get("values", ())):
                for text in label_value(value):
                    found.append(f"{path}.matchExpressions[{i}].values[{j}]: {value} is invalid, {text}")
    return found


def _node_affinity_warnings(affinity: ObjView, path: str) -> list[str]:
    found = []
    for i, term in enumerate((affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        found += _node_selector_term_warnings(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{i}]", check_values=False)
    for i, term in enumerate(affinity.get(PREFERRED, ())):
        where = f"{path}.{PREFERRED}[{i}].preference"
        found += _node_selector_term_warnings(term.get("preference") or {}, where, check_values=True)
    return found


def _pod_affinity_warnings(affinity: ObjView, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for i, term in enumerate(terms.get(REQUIRED, ())):
            if "labelSelector" not in term:
                yield f"{path}.{kind}.{REQUIRED}[{i}].labelSelector: {_NO_MATCH}"
        for i, term in enumerate(terms.get(PREFERRED, ())):
            if "labelSelector" not in (term.get("podAffinityTerm") or {}):
                yield f"{path}.{kind}.{PREFERRED}[{i}].podAffinityTerm.labelSelector: {_NO_MATCH}"


def _volume_warnings(volumes: Sequence[ObjView], path: str) -> list[str]:
    found = []
    for i, volume in enumerate(volumes):
        for kind in volume.keys() & _VOLUMES.keys():
            if kind != "ephemeral":
                shown = "storageOS" if kind == "storageos" else kind
                found.append(f"{path}[{i}].{shown}: {_VOLUMES[kind]}")
            elif "volumeClaimTemplate" in volume[kind]:
                claim = volume[kind]["volumeClaimTemplate"].get("spec") or {}
                found += _claim_spec_warnings(claim, f"{path}[{i}].ephemeral.volumeClaimTemplate.spec")
    return found


def _claim_spec_warnings(spec: ObjView, path: str) -> list[str]:
    """Return the warnings of a volume claim, in a pod or on its own."""
    resources = spec.get("resources") or {}
    found: list[str] = []
    for which in ("requests", "limits"):
        found += _fractional_warning(resources.get(which) or {}, "storage", f"{path}.resources.{which}")
    return found


def _fractional_warning(amounts: Mapping[str, str], resource: str, path: str) -> list[str]:
    """Return a warning for a fractional number of bytes."""
    amount = amounts.get(resource)
    # Only a suffix below one can hide a fraction in a canonical amount.
    if amount is None or (amount[-1] not in "munE" and "e-" not in amount) or milli_value(amount) % 1000 == 0:
        return []
    return [f"{path}[{resource}]: fractional byte value {quote(amount)} is invalid, must be an integer"]


def _duplicates(items: Sequence[ObjView], key: str, path: str) -> list[str]:
    found, seen = [], set()
    for i, item in enumerate(items):
        value = item.get(key, "")
        if value in seen:
            found.append(f"{path}[{i}].{key}: duplicate {key} {quote(value)}")
        seen.add(value)
    return found


def app_armor_profile(annotation: str) -> dict[str, str] | None:
    """Return the field that stands for an old annotation."""
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation == "runtime/default":
        return {"type": "RuntimeDefault"}
    name = annotation.removeprefix("localhost/")
    return {"type": "Localhost", "localhostProfile": name} if name and name != annotation else None


def _container_warnings(
    container: ObjView, path: str, annotations: ObjView, prefix: str, pod_context: ObjView, *, in_template: bool
) -> list[str]:
    found: list[str] = []
    if annotations:
        name, context = container.get("name", ""), container.get("securityContext") or {}
        key = SECCOMP_CONTAINER + name
        if key in annotations and "seccompProfile" not in context:
            found.append(f"{prefix}metadata.annotations[{key}]: {_OLD_SECCOMP}")
        key = APP_ARMOR + name
        if in_template and key in annotations and "appArmorProfile" not in context:
            of_pod = pod_context.get("appArmorProfile")
            if of_pod is None or of_pod != app_armor_profile(annotations[key]):
                found.append(f"{prefix}metadata.annotations[{key}]: {OLD_APP_ARMOR}")
    resources = container.get("resources")
    if resources:
        for resource in ("memory", "ephemeral-storage"):
            for which in ("limits", "requests"):
                if which in resources:
                    found += _fractional_warning(resources[which], resource, f"{path}.resources.{which}")
    variables = container.get("env", ())
    if len(variables) > 1:
        seen: set[str] = set()
        for i, variable in enumerate(variables):
            name = variable.get("name", "")
            if name in seen:
                # A variable may refer to its previous value, but not replace it.
                reference, value = f"$({name})", variable.get("value", "")
                if "valueFrom" in variable or value == reference or reference not in value:
                    text = f"hides previous definition of {quote(name)}, which may be dropped when using apply"
                    found.append(f"{path}.env[{i}]: {text}")
            seen.add(name)
    return found


def _port_warnings(spec: ObjView, path: str) -> list[str]:
    found: list[str] = []
    by_port: dict[str, list[tuple[str, ObjView]]] = {}
    names: dict[str, str] = {}
    by_name: list[str] = []
    for container, where in containers_with_path(spec, path):
        for i, port in enumerate(container.get("ports", ())):
            at, address, host = f"{where}.ports[{i}]", port.get("hostIP", ""), port.get("hostPort", 0)
            if address and not host:
                shown = (
                    f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                    f"Protocol:{port.get('protocol', '')} HostIP:{address}}}"
                )
                found.append(f"{at}: hostIP set without hostPort: {shown}")
            others = by_port.setdefault(f"{port.get('containerPort', 0)}/{port.get('protocol', '')}", [])
            for other_at, other in others:
                other_address, other_host = other.get("hostIP", ""), other.get("hostPort", 0)
                if address == other_address and host == other_host:
                    found.append(f"{at}: duplicate port definition with {other_at}")
                elif not host or not other_host:
                    found.append(f"{at}: overlapping port definition with {other_at}")
                elif host == other_host and bool(address) != bool(other_address):
                    found.append(f"{at}: dangerously ambiguous port definition with {other_at}")
            others.append((at, port))
            name = port.get("name", "")
            if name in names:
                text = "services and probes that select ports by name will use"
                by_name.append(f"{at}: duplicate port name {quote(name)} with {names[name]}, {text} {names[name]}")
            elif name:
                names[name] = at
    return found + by_name


def ip_warnings(value: str, path: str) -> list[str]:
    """Return warnings for addresses that are accepted but not in canonical form."""
    parsed = parse_ip(value)
    if parsed is None or parsed.version == 4 or str(parsed) == value:
        return []
    return [f"{path}: IPv6 address {quote(value)} should be in RFC 5952 canonical format ({quote(str(parsed))})"]
