"""The files of volumes that the kubelet writes itself: from config maps, secrets, fields of the Pod, trust bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.meta.selectors import from_label_selector
from setpoint.meta.x509.pem import blocks, encode
from setpoint.node.downward import field_value, resource_value
from setpoint.node.environment import data_of
from setpoint.node.runtime.files import Volume

if TYPE_CHECKING:
    from setpoint.node.pod_status import Situation
    from setpoint.node.tools import Lookup, Tools

Obj = Mapping[str, Any]

KINDS = ("configMap", "secret", "downwardAPI", "projected")

_ROOT_CA = "kube-root-ca.crt"
"""A controller publishes it in every namespace; a cluster without that controller has Pods all the same."""


def missing(source: Obj, namespace: str, lookup: Lookup) -> str:
    """What the kubelet says of a source that is not there, or lacks what is asked of it."""
    for key, secret in (("configMap", False), ("secret", True)):
        wanted = source.get(key)
        if wanted is None:
            continue
        name = wanted.get("name") or wanted.get("secretName") or ""
        if wanted.get("optional") or name == _ROOT_CA:
            return ""
        obj = (lookup.secret if secret else lookup.config_map)(namespace, name)
        if obj is None:
            return f'{"secret" if secret else "configmap"} "{name}" not found'
        data = {**(obj.get("data") or {}), **(obj.get("binaryData") or {})}
        for item in wanted.get("items") or ():
            if item["key"] not in data:
                kind = (
                    "references non-existent secret key" if secret else "configmap references non-existent config key"
                )
                return f"{kind}: {item['key']}"
    wanted = source.get("clusterTrustBundle")
    if wanted is not None and not wanted.get("optional") and not _bundles(wanted, lookup):
        if wanted.get("name"):
            return (
                f'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "{wanted["name"]}" not found'
            )
        return "combination of signerName and labelSelector matched zero ClusterTrustBundles"
    return ""


def project(pod: Obj, container: Obj, volume: Obj, situation: Situation, tools: Tools) -> Volume:
    """The volume as it is to be now; what is missing is left out."""
    whole: Obj = next(volume[kind] for kind in KINDS if volume.get(kind) is not None)
    # Config maps are written to the node's disk, everything else is kept in memory.
    file_system = "ext4" if volume.get("configMap") is not None else "tmpfs"
    found = Volume(mode=0o777 | 0o1000, file_system=file_system, read_only=True)
    default = whole.get("defaultMode", 0o644)
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    sources = whole.get("sources") or () if volume.get("projected") is not None else (volume,)
    for source in sources:
        for name, text, mode in _of_source(source, pod, container, situation, tools):
            found.files[name] = text
            if (mode or default) != 0o644:
                found.modes[name] = mode or default
        wanted = source.get("serviceAccountToken") or {}
        token = situation.tokens.get((volume["name"], wanted.get("path", "")))
        if token is not None:
            found.files[wanted["path"]] = token[0]
            user = _only_user(pod["spec"])
            if user is not None or group is not None:
                found.modes[wanted["path"]] = 0o600
                found.owners[wanted["path"]] = (user or 0, 0)
            elif default != 0o644:
                found.modes[wanted["path"]] = default
    if group is not None:
        found.give_to_group(group)
    return found


def _only_user(spec: Obj) -> int | None:
    """Whom all containers run as, if that is said and one and the same."""
    default = (spec.get("securityContext") or {}).get("runAsUser")
    users = {
        (each.get("securityContext") or {}).get("runAsUser", default)
        for field in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(field) or ()
    }
    return users.pop() if len(users) == 1 else None


def _of_source(
    source: Obj, pod: Obj, container: Obj, situation: Situation, tools: Tools
) -> Sequence[tuple[str, str, int | None]]:
    lookup, found = tools.lookup, []
    for key, secret in (("configMap", False), ("secret", True)):
        wanted = source.get(key)
        if wanted is not None:
            name = wanted.get("name") or wanted.get("secretName") or ""
            obj = (lookup.secret if secret else lookup.config_map)(pod["metadata"]["namespace"], name)
            data = data_of(obj, secret) if obj is not None else {}
            items = wanted.get("items") or [{"key": each, "path": each} for each in data]
            found += [(item["path"], data[item["key"]], item.get("mode")) for item in items if item["key"] in data]
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        text = ""
        if item.get("fieldRef"):
            text = field_value(pod, item["fieldRef"].get("fieldPath", ""), situation)
        elif item.get("resourceFieldRef"):
            text = resource_value(pod, container, item["resourceFieldRef"], situation)
        found.append((item["path"], text, item.get("mode")))
    wanted = source.get("clusterTrustBundle")
    if wanted is not None:
        found.append((wanted["path"], _trust_anchors(_bundles(wanted, lookup)), None))
    return found


def _bundles(wanted: Obj, lookup: Lookup) -> list[Obj]:
    if wanted.get("name"):
        return [each for each in lookup.trust_bundles() if each["metadata"]["name"] == wanted["name"]]
    selector = wanted.get("labelSelector")
    return [
        each
        for each in lookup.trust_bundles()
        if selector is not None
        and each["spec"].get("signerName") == wanted.get("signerName")
        and from_label_selector(selector).matches(each["metadata"].get("labels") or {})
    ]


def _trust_anchors(bundles: Sequence[Obj]) -> str:
    """Every certificate once, without what was written around it."""
    texts = [(each["spec"].get("trustBundle") or "").encode() for each in bundles]
    certificates = {block.data for text in texts for block in blocks(text) if block.type == "CERTIFICATE"}
    return "".join(sorted(encode("CERTIFICATE", each) for each in certificates))
