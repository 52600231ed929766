"""The volumes of a Pod: whether what they need is there, and the files that containers see in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from setpoint.node.downward import field_value, resource_value
from setpoint.node.environment import data_of
from setpoint.node.runtime.expansion import expand

if TYPE_CHECKING:
    from setpoint.node.pod_status import Situation
    from setpoint.node.tools import Lookup, Tools

Obj = Mapping[str, Any]
Files = dict[str, str]

_ROOT_CA = "kube-root-ca.crt"
"""A controller publishes it in every namespace; a cluster without that controller has Pods all the same."""


class VolumeProblem(Exception):
    """What the kubelet says about a volume that cannot be mounted."""


def mount_problem(pod: Obj, lookup: Lookup) -> VolumeProblem | None:
    volumes = pod["spec"].get("volumes")
    if not volumes:
        return None
    namespace = pod["metadata"]["namespace"]
    for volume in volumes:
        for source in (volume.get("projected") or {}).get("sources") or (volume,):
            problem = _missing(source, namespace, lookup)
            if problem:
                return VolumeProblem(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}')
    return None


def _missing(source: Obj, namespace: str, lookup: Lookup) -> str:
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
    return ""


def mounts_of(pod: Obj, container: Obj, situation: Situation, tools: Tools) -> list[tuple[str, Files]]:
    """Where the container sees its volumes. Volumes that Pods write to are shared by its containers."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    found: list[tuple[str, Files]] = []
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        if volume is None:
            continue
        files = _content(pod, container, volume, situation, tools)
        below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", {})
        if below:
            inside = {name[len(below) + 1 :]: text for name, text in files.items() if name.startswith(below + "/")}
            files = {"": files[below]} if below in files else inside
        found.append((mount["mountPath"], files))
    return found


def _content(pod: Obj, container: Obj, volume: Obj, situation: Situation, tools: Tools) -> Files:
    namespace = pod["metadata"]["namespace"]
    lookup = tools.lookup
    if not any(volume.get(kind) is not None for kind in ("configMap", "secret", "downwardAPI", "projected")):
        return tools.runtime.shared_files(*_whose(pod, volume))
    files: Files = {}
    for source in (volume.get("projected") or {}).get("sources") or (volume,):
        for key, secret in (("configMap", False), ("secret", True)):
            wanted = source.get(key)
            if wanted is not None:
                name = wanted.get("name") or wanted.get("secretName") or ""
                obj = (lookup.secret if secret else lookup.config_map)(namespace, name)
                files |= _chosen(data_of(obj, secret) if obj is not None else {}, wanted.get("items"))
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            if item.get("fieldRef"):
                files[item["path"]] = field_value(pod, item["fieldRef"].get("fieldPath", ""), situation)
            elif item.get("resourceFieldRef"):
                files[item["path"]] = resource_value(pod, container, item["resourceFieldRef"])
    return files


def _chosen(data: Files, items: Any) -> Files:
    if not items:
        return data
    return {item["path"]: data[item["key"]] for item in items if item["key"] in data}


def _whose(pod: Obj, volume: Obj) -> tuple[str, str]:
    """A claim or a path on the node outlives the Pod, and others may see it too."""
    if volume.get("persistentVolumeClaim"):
        return "", f"{pod['metadata']['namespace']}/{volume['persistentVolumeClaim'].get('claimName', '')}"
    if volume.get("hostPath"):
        return "", f"{pod['spec'].get('nodeName')}:{volume['hostPath'].get('path', '')}"
    return pod["metadata"]["uid"], volume["name"]


Mounts = Callable[[], list[tuple[str, Files]]]
