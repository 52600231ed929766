"""The contents of projected volumes: ConfigMaps, Secrets, the downward API, trust bundles and service account tokens.

The simulated runtime and real nodes use these functions. They read objects through a lister, and return content as
bytes; where and how the files are written is the runtime's matter.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import from_label_selector
from setpoint.meta.x509.pem import blocks, encode
from setpoint.node.environment import ContainerConfigError, expand, field_value, resource_value

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.pod_status import PodState

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")

PROJECTED_KINDS = ("configMap", "secret", "downwardAPI", "projected")
DEFAULT_MODE = 0o644
DEFAULT_TOKEN_SECONDS = 3600


class SourceLister(Protocol):
    """Read access to the objects that volumes are projected from."""

    def config_map(self, namespace: str, name: str) -> ObjView | None: ...

    def secret(self, namespace: str, name: str) -> ObjView | None: ...

    def trust_bundles(self) -> Sequence[ObjView]: ...


class SourceFile(NamedTuple):
    """A file of a projected volume."""

    path: str
    """The path relative to the volume's directory."""
    content: bytes
    mode: int | None
    """The mode that the source sets for this file; None means the volume's default."""


def projection_of(volume: ObjView) -> ObjView | None:
    """Return the source of a projected volume; None for volumes of other types."""
    return next((volume[kind] for kind in PROJECTED_KINDS if volume.get(kind) is not None), None)


def sources_of(volume: ObjView) -> Sequence[ObjView]:
    """Return the sources of a projected volume; a volume with a single source is its own source."""
    projected = volume.get("projected")
    return projected.get("sources") or () if projected is not None else (volume,)


def on_disk(volume: ObjView) -> bool:
    """Return whether the files are written to the node's disk; all sources except ConfigMaps are held in memory."""
    return volume.get("configMap") is not None


def missing_source(source: ObjView, namespace: str, lister: SourceLister, optional_names: Collection[str] = ()) -> str:
    """Return the kubelet's message if a source or one of its keys does not exist; empty otherwise. Objects with one of
    the `optional_names` may be missing."""
    for key, secret in (("configMap", False), ("secret", True)):
        wanted = source.get(key)
        if wanted is None:
            continue
        name = _object_name(wanted)
        if wanted.get("optional") or name in optional_names:
            return ""
        obj = (lister.secret if secret else lister.config_map)(namespace, name)
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
    if wanted is not None and not wanted.get("optional") and not _matching_bundles(wanted, lister):
        if wanted.get("name"):
            return (
                f'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "{wanted["name"]}" not found'
            )
        return "combination of signerName and labelSelector matched zero ClusterTrustBundles"
    return ""


def source_files(
    source: ObjView, pod: Pod, container: ObjView, pod_state: PodState, lister: SourceLister
) -> list[SourceFile]:
    """Return the files of a source, except service account tokens; missing objects and keys are left out. Resource
    fields without a container name refer to `container`."""
    found: list[SourceFile] = []
    for key, secret in (("configMap", False), ("secret", True)):
        wanted = source.get(key)
        if wanted is not None:
            obj = (lister.secret if secret else lister.config_map)(pod["metadata"]["namespace"], _object_name(wanted))
            data = content_of(obj, secret) if obj is not None else {}
            items = wanted.get("items") or [{"key": each, "path": each} for each in data]
            found += [
                SourceFile(item["path"], data[item["key"]], item.get("mode")) for item in items if item["key"] in data
            ]
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        text = ""
        if item.get("fieldRef"):
            text = field_value(pod, item["fieldRef"].get("fieldPath", ""), pod_state)
        elif item.get("resourceFieldRef"):
            text = resource_value(pod, container, item["resourceFieldRef"], pod_state)
        found.append(SourceFile(item["path"], _encoded(text), item.get("mode")))
    wanted = source.get("clusterTrustBundle")
    if wanted is not None:
        found.append(SourceFile(wanted["path"], _trust_anchors(_matching_bundles(wanted, lister)), None))
    return found


def content_of(obj: ObjView, secret: bool) -> dict[str, bytes]:
    """Return the data of a Secret or ConfigMap by key."""
    if secret:
        return _decoded(obj.get("data"))
    return {**{key: _encoded(text) for key, text in (obj.get("data") or {}).items()}, **_decoded(obj.get("binaryData"))}


def common_user(spec: ObjView) -> int | None:
    """Return the user that all containers run as; None if it is not set or differs."""
    default = (spec.get("securityContext") or {}).get("runAsUser")
    users = {
        (each.get("securityContext") or {}).get("runAsUser", default)
        for field in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(field) or ()
    }
    return users.pop() if len(users) == 1 else None


def token_sources(spec: ObjView) -> Iterator[tuple[str, ObjView]]:
    """Yield the service account tokens that a Pod's volumes contain, each with the name of its volume."""
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken"):
                yield volume["name"], source["serviceAccountToken"]


def token_request(pod: Pod, source: ObjView) -> Obj:
    """Return the TokenRequest for a token that is bound to the Pod."""
    meta = pod["metadata"]
    spec: Obj = {
        "audiences": [source["audience"]] if source.get("audience") else [],
        "expirationSeconds": source.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]},
    }
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def sub_path_of(mount: ObjView, environment: Mapping[str, str]) -> str:
    """Return the sub-path of a volume mount, empty for the whole volume. Raise ContainerConfigError if it is
    invalid."""
    path: str = mount.get("subPath") or ""
    expression = mount.get("subPathExpr")
    if expression:
        names = {found[1] for found in _REFERENCE.finditer(expression) if found[1] is not None}
        missing = sorted(name for name in names if not environment.get(name))
        if missing:
            raise ContainerConfigError(f"missing value for {', '.join(missing)}")
        path = expand(expression, environment)
    check_sub_path(path)
    return path


def check_sub_path(path: str) -> None:
    """Raise ContainerConfigError if a sub-path is not a relative path below its volume."""
    if path.startswith("/"):
        raise ContainerConfigError(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise ContainerConfigError(f"unable to provision SubPath `{path}`: must not contain '..'")


def _object_name(wanted: ObjView) -> str:
    """Return the name of the object. A `secret` volume has it in `secretName`, all other sources in `name`."""
    return wanted.get("name") or wanted.get("secretName") or ""


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: b64decode(value) for key, value in (data or {}).items()}


def _matching_bundles(wanted: ObjView, lister: SourceLister) -> list[ObjView]:
    if wanted.get("name"):
        return [each for each in lister.trust_bundles() if each["metadata"]["name"] == wanted["name"]]
    selector = wanted.get("labelSelector")
    return [
        each
        for each in lister.trust_bundles()
        if selector is not None
        and each["spec"].get("signerName") == wanted.get("signerName")
        and from_label_selector(selector).matches(each["metadata"].get("labels") or {})
    ]


def _trust_anchors(bundles: Sequence[ObjView]) -> bytes:
    """Return each certificate of the bundles once, without headers and comments."""
    texts = [(each["spec"].get("trustBundle") or "").encode() for each in bundles]
    certificates = {block.data for text in texts for block in blocks(text) if block.type == "CERTIFICATE"}
    return "".join(sorted(encode("CERTIFICATE", each) for each in certificates)).encode()
