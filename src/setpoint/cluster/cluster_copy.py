"""Copies of a cluster: its objects as they are stored, read from any Kubernetes API server by list requests alone.

A copy keeps uids and resourceVersions, and can be written to a file and to a new data directory. It can also become the
start state of an embedded cluster whose nodes are all simulated; what only works in the original is then left out and
named: webhooks and aggregated API servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_network
from typing import Any

import orjson

from setpoint.apiserver.admission.default_toleration_seconds import DEFAULT_TOLERATION_SECONDS
from setpoint.apiserver.encoding import encoding_of
from setpoint.apiserver.shared_entries import SharedEntries
from setpoint.apiserver.upkeep.server_objects import OwnAddress
from setpoint.apiserver.version import VERSION
from setpoint.client import Client
from setpoint.client.resources import BY_PLURAL
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.embedded import EmbeddedOptions, State
from setpoint.cluster.snapshot_file import (
    INCLUDED,
    LEFT_OUT,
    REDACTED,
    SnapshotHeader,
    StateReader,
    StoredObject,
)
from setpoint.cluster.virtual.conditions import unavailable_images
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.catalog import Resource
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import ApiError, BadRequest, Expired, Forbidden, MethodNotAllowed, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time, parse_time
from setpoint.node.options import FleetOptions
from setpoint.node.pace import REAL, Pace
from setpoint.node.runtime.images import ImageRule, parse_reference
from setpoint.store.history import History
from setpoint.store.interface import KeyValue, Store
from setpoint.store.memory import MemoryStore

_EVENTS = "core/events/"
_PODS, _MANY_PODS, _BATCH_PERIOD = "core/pods/", 200, 0.2
"""Controllers of endpoints combine the changes of many Pods within a fraction of a second. In real time they do so
because each reconcile takes a while; in virtual time it takes none, and there would be one for each Pod."""
_SECRETS, _NAMESPACES, _NODES = "core/secrets/", "core/namespaces/", "core/nodes/"
_WEBHOOKS = (
    "admissionregistration.k8s.io/mutatingwebhookconfigurations/",
    "admissionregistration.k8s.io/validatingwebhookconfigurations/",
)
_API_SERVICES = "apiregistration.k8s.io/apiservices/"
_CRDS = "apiextensions.k8s.io/customresourcedefinitions/"
_ROOT_CA = "core/configmaps/kube-system/kube-root-ca.crt"
_SERVICE_CIDR = "networking.k8s.io/servicecidrs/kubernetes"
_KUBE_SYSTEM = "core/namespaces/kube-system"
_DEFAULT_CIDR, _POD_CIDR = "10.96.0.0/12", "10.244.0.0/16"
_BOUND = b'"nodeName":"'
_TOLERATION_FLAG = re.compile(
    r"^default-(?P<why>not-ready|unreachable)-toleration-seconds[=: ]{1,3}(?P<seconds>\d{1,9})\s*$",
    re.ASCII | re.MULTILINE,
)
"""A line of `/flagz`. Servers choose the delimiter."""
_TYPE_META = ("kind", "apiVersion")
_FIRST_METADATA = ("name", "generateName", "namespace", "uid", "resourceVersion")


@dataclass(slots=True)
class ClusterCopy:
    """The objects of a cluster at one moment."""

    objects: dict[str, KeyValue]
    """The stored objects by key."""
    revision: int
    now: datetime
    """The time of the copy."""
    secrets: str = LEFT_OUT
    left_out: list[str] = field(default_factory=list)
    """Descriptions of missing content, one sentence each."""
    kubernetes: str = ""
    toleration_seconds: tuple[int, int] = (DEFAULT_TOLERATION_SECONDS, DEFAULT_TOLERATION_SECONDS)
    """The seconds for which new Pods tolerate a node that is not ready, and one that is unreachable: those of the
    original's flags, or the defaults if they are not known."""
    shared: SharedEntries = field(default_factory=SharedEntries, repr=False, compare=False)
    """Decoded objects that all clusters which start from this state share."""

    def header(self, made: datetime, **more: Any) -> SnapshotHeader:
        namespace = self.objects.get(_KUBE_SYSTEM)
        uid = str(orjson.loads(namespace.value)["metadata"].get("uid", "")) if namespace is not None else ""
        return SnapshotHeader(
            self.revision,
            format_time(self.now),
            uid,
            self.kubernetes,
            format_time(made),
            self.secrets,
            tuple(self.left_out),
            **more,
        )

    def stored(self) -> Iterator[StoredObject]:
        for key in sorted(self.objects):
            item = self.objects[key]
            yield StoredObject(key, item.mod_revision, item.value)

    @property
    def lacks_nodes(self) -> bool:
        """Whether Pods are bound to nodes and there is no Node, because the nodes were not read: every Pod is lost in a
        cluster that starts from this state."""
        return not any(key.startswith(_NODES) for key in self.objects) and any(
            key.startswith(_PODS) and _BOUND in item.value for key, item in self.objects.items()
        )

    def digest(self) -> str:
        """Return a digest of all objects, to compare two copies."""
        found = sha256()
        for item in self.stored():
            found.update(b"%s %d\n%s" % (item.key.encode(), len(item.value), item.value))
        return found.hexdigest()

    def isolated(self) -> ClusterCopy:
        """Return a copy without webhooks and aggregated API servers, which lead out of it; `left_out` names them."""
        removed: set[str] = set()
        left_out = [*self.left_out]
        for key in sorted(self.objects):
            if key.startswith((*_WEBHOOKS, _API_SERVICES)):
                obj = orjson.loads(self.objects[key].value)
                name = obj["metadata"]["name"]
                if key.startswith(_API_SERVICES):
                    if not (obj.get("spec") or {}).get("service"):
                        continue
                    left_out.append(f"The aggregated API {name} is not served.")
                else:
                    left_out.append(f"The webhooks of {name} are not called.")
                removed.add(key)
        if not removed:
            return self
        kept = {key: item for key, item in self.objects.items() if key not in removed}
        return replace(self, objects=kept, left_out=left_out)

    # -- the cluster that starts from it -------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the state from which an embedded cluster starts."""
        return State(MemoryStore(History(self.objects.values(), self.revision)), sha256(), self.shared)

    def embedded_options(self, pace: Pace = REAL) -> EmbeddedOptions:
        """Return the options of an embedded cluster that continues this state: all nodes are simulated, and the server
        changes nothing that the original's would not."""
        not_ready, unreachable = self.toleration_seconds
        cidrs = self._value(_SERVICE_CIDR).get("spec", {}).get("cidrs") or [_DEFAULT_CIDR]
        root_ca = (self._value(_ROOT_CA).get("data") or {}).get("ca.crt", "")
        allocates = self._allocates_node_cidrs()
        batch = _BATCH_PERIOD if sum(key.startswith(_PODS) for key in self.objects) > _MANY_PODS else 0.0
        controllers = ControllerOptions(
            root_ca=root_ca,
            allocate_node_cidrs=allocates,
            cluster_cidr=_POD_CIDR if allocates else "",
            service_cluster_ip_range=",".join(cidrs),
            endpoint_updates_batch_period=batch,
            endpointslice_updates_batch_period=batch,
        )
        return EmbeddedOptions(
            ComponentOptions(
                nodes=0,
                controller_options=controllers,
                leader_elect=False,  # the Leases are the original's, whose holders do not release them here
                identity="copy",
                default_storage_class=False,
                fleet=FleetOptions(
                    0, adopt_all=True, pace=pace, images=self._image_rules(), reject_misspelled_images=True
                ),
            ),
            ApiServerConfig(
                NO_DATA_DIR,
                store="memory",
                authorization_mode=["Node", "RBAC"],
                service_cluster_ip_range=",".join(cidrs),
                default_not_ready_toleration_seconds=not_ready,
                default_unreachable_toleration_seconds=unreachable,
            ),
            address=OwnAddress("", 6443, cidrs),
            repair=True,
        )

    def _image_rules(self) -> tuple[ImageRule, ...]:
        """Return rules by which the images that cannot be pulled in the original cannot be pulled in the copy."""
        pods = (item.value for key, item in self.objects.items() if key.startswith(_PODS))
        rules = []
        for image, error in unavailable_images(pods).items():
            if (reference := parse_reference(image)) is not None:
                escaped = error.replace("{", "{{").replace("}", "}}")
                rules.append(ImageRule(f"^{re.escape(reference.name)}$", error=escaped or "it cannot be pulled"))
        return tuple(rules)

    def _value(self, key: str) -> Any:
        item = self.objects.get(key)
        return orjson.loads(item.value) if item is not None else {}

    def _allocates_node_cidrs(self) -> bool:
        """Return whether all nodes have a Pod range within the usual one, as in clusters of this project."""
        nodes = [orjson.loads(item.value) for key, item in self.objects.items() if key.startswith(_NODES)]
        ranges = [(node.get("spec") or {}).get("podCIDR") or "" for node in nodes]
        known = ip_network(_POD_CIDR)
        try:
            return bool(ranges) and all(each and ip_network(each).subnet_of(known) for each in ranges)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            return False


# -- reading ----------------------------------------------------------------------------------------------------------


async def copied(
    client: Client,
    now: datetime,
    *,
    secrets: str = REDACTED,
    namespaces: Collection[str] = (),
    events: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> ClusterCopy:
    """Read a cluster by list requests: everything, or what is in some namespaces and in none. All lists are of one
    revision if the server still has it. The flags are read if the user may. Raises ApiError if not even namespaces can
    be listed."""
    first = await client.list(("v1", "Namespace"))
    revision = first.resource_version
    copy = ClusterCopy({}, int(revision or 0), now, secrets)
    copy.kubernetes = str((await client.sender.json("GET", "/version")).get("gitVersion", ""))
    copy.toleration_seconds = await _toleration_seconds(client)
    resources = chosen_resources(await client.discovery.resources(fresh=True))
    for group_version, why in sorted(client.discovery.missing.items()):
        copy.left_out.append(f"{group_version} was not read: {why}.")
    reader = _Reader(client, copy, revision, namespaces)
    for resource in resources:
        prefix = _prefix(resource)
        if (prefix == _EVENTS and not events) or (prefix == _SECRETS and secrets == LEFT_OUT):
            continue
        await reader.read(resource, prefix)
        progress(len(copy.objects))
    if secrets == LEFT_OUT:
        copy.left_out.append("Secrets are left out.")
    copy.revision = max([copy.revision, *(item.mod_revision for item in copy.objects.values())])
    return copy


async def _toleration_seconds(client: Client) -> tuple[int, int]:
    """Return the default tolerations of new Pods according to the flags of the server; upstream's if it does not show
    its flags, or not to this user."""
    try:
        flags = (await client.sender.request("GET", "/flagz", accept="text/plain")).body.decode(errors="replace")
    except ApiError:
        flags = ""
    found = {match["why"]: int(match["seconds"]) for match in _TOLERATION_FLAG.finditer(flags)}
    not_ready, unreachable = (found.get(why, DEFAULT_TOLERATION_SECONDS) for why in ("not-ready", "unreachable"))
    return not_ready, unreachable


def chosen_resources(resources: Sequence[Resource]) -> list[Resource]:
    """Return the resources to list, one for each kind of object: in the stored version if that is served."""
    found: dict[str, Resource] = {}
    for resource in resources:
        if "list" not in resource.verbs or (resource.group, resource.plural) in _COMPUTED:
            continue
        known = BY_PLURAL.get((resource.group, resource.version, resource.plural))
        prefix = _prefix(resource)
        is_stored = known is not None and known.storage == (known.group, known.version)
        if prefix not in found or is_stored:
            found[prefix] = known or resource
    # Definitions come first: the objects of custom kinds are read in the version that their definition stores.
    return sorted(found.values(), key=lambda each: _prefix(each) != _CRDS)


_COMPUTED = {("", "componentstatuses"), ("metrics.k8s.io", "pods"), ("metrics.k8s.io", "nodes")}


def _prefix(resource: Resource) -> str:
    known = BY_PLURAL.get((resource.group, resource.version, resource.plural))
    return (known or resource).storage_prefix


class _Reader:
    def __init__(self, client: Client, copy: ClusterCopy, revision: str, namespaces: Collection[str]) -> None:
        self._client = client
        self._copy = copy
        self._revision = revision
        self._namespaces = namespaces
        self._stored_versions: dict[tuple[str, str], str] = {}
        """The stored version of custom resources, by group and plural."""

    async def read(self, resource: Resource, prefix: str) -> None:
        built_in = (resource.group, resource.version, resource.plural) in BY_PLURAL
        group, plural = resource.group, resource.plural
        if not built_in:
            stored = self._stored_versions.get((group, plural))
            if stored is None:
                self._copy.left_out.append(f"{resource} is served by an aggregated API server, which is not copied.")
                return
            with suppress(NotFound):  # the stored version is not served: any other one can be converted
                resource = await self._client.discovery.find((group, stored, plural))
        for item in await self._list(resource):
            meta = item["metadata"]
            if self._namespaces and resource.namespaced and meta.get("namespace") not in self._namespaces:
                continue
            if prefix == _NAMESPACES and self._namespaces and meta["name"] not in (*self._namespaces, *_SYSTEM):
                continue
            if prefix == _SECRETS and self._copy.secrets == REDACTED:
                item = _redacted(item)
            if prefix == _CRDS:
                self._note_definition(item)
            self._add(resource, item)

    async def _list(self, resource: Resource) -> list[Obj]:
        left_out = self._copy.left_out
        try:
            try:
                found = await self._client.list(
                    resource, resource_version=self._revision, resource_version_match="Exact"
                )
            except (Expired, BadRequest, MethodNotAllowed):
                found = await self._client.list(resource)
        except Forbidden:
            left_out.append(f"{resource} may not be listed.")
            return []
        except (NotFound, MethodNotAllowed):
            return []
        except ApiError as error:
            left_out.append(f"{resource} could not be listed: {error}.")
            return []
        return found.items

    def _note_definition(self, item: Obj) -> None:
        spec = item["spec"]
        for version in spec.get("versions") or ():
            if version.get("storage"):
                self._stored_versions[spec["group"], spec["names"]["plural"]] = version["name"]

    def _add(self, resource: Resource, item: Obj) -> None:
        value = stored_bytes(resource, item)
        if value is None:
            self._copy.left_out.append(f"{resource} {item['metadata']['name']} cannot be decoded.")
            return
        key, revision = stored_key(resource, item), int(item["metadata"].get("resourceVersion") or 0)
        self._copy.objects[key] = KeyValue(key, value, revision, revision)


_SYSTEM = ("default", "kube-system", "kube-public", "kube-node-lease")


def stored_key(resource: Resource, item: Mapping[str, Any]) -> str:
    """Return the key under which an object that was read is stored."""
    prefix, meta = _prefix(resource), item["metadata"]
    return f"{prefix}{meta['namespace']}/{meta['name']}" if resource.namespaced else f"{prefix}{meta['name']}"


def stored_bytes(resource: Resource, item: Mapping[str, Any]) -> bytes | None:
    """Return an object that was read in the form in which it is stored; None if it cannot be decoded."""
    if (resource.group, resource.version, resource.plural) not in BY_PLURAL:
        return _custom_form(resource, item)
    encoding = encoding_of(resource)
    bare = {name: each for name, each in item.items() if name not in _TYPE_META}
    try:
        typed = decode(resource.type, bare)
    except DecodeError:
        return None
    typed = {name: each for name, each in typed.items() if name not in _TYPE_META}
    if encoding.stored and typed == bare and next(iter(bare), "") == "metadata":
        return orjson.dumps(bare)  # in the order in which the server has stored it
    return orjson.dumps(encoding.to_storage(typed))


def _custom_form(resource: Resource, item: Mapping[str, Any]) -> bytes:
    meta = item["metadata"]
    ordered = {name: meta[name] for name in _FIRST_METADATA if name in meta} | meta
    rest = {name: each for name, each in item.items() if name not in (*_TYPE_META, "metadata")}
    api_version = item.get("apiVersion") or resource.api_version
    return orjson.dumps({"apiVersion": api_version, "kind": resource.kind, "metadata": ordered, **rest})


def _redacted(secret: Obj) -> Obj:
    return {**secret, **({"data": dict.fromkeys(secret["data"], "")} if secret.get("data") else {})}


async def copied_store(store: Store, now: datetime, revision: int = 0) -> ClusterCopy:
    """Return a copy of the content of a store, at a revision or now, with all Secrets. `store` returns decrypted
    values."""
    page = await store.list("", revision=revision)
    return copied_items(page.items, page.revision, now)


def copied_items(items: Iterable[KeyValue], revision: int, now: datetime) -> ClusterCopy:
    """Return a copy of stored objects, without the server's own records."""
    objects = {item.key: item for item in items if item.key.count("/") >= 2 and not item.key.startswith("ranges/")}
    return ClusterCopy(objects, revision, now, INCLUDED, kubernetes=VERSION["gitVersion"])


def loaded_copy(reader: StateReader) -> ClusterCopy:
    """Return the state at the beginning of a file. Raises InvalidSnapshot, OSError."""
    header = reader.header
    objects = {item.key: KeyValue(item.key, item.value, item.revision, item.revision) for item in reader.objects()}
    revision = max([header.revision, *(item.mod_revision for item in objects.values())])
    return ClusterCopy(objects, revision, parse_time(header.at), header.secrets, [*header.left_out], header.kubernetes)


def last_copy(reader: StateReader) -> ClusterCopy:
    """Return the state at the end of a file: that of a snapshot, or after all changes of a recording. Raises
    InvalidSnapshot, OSError."""
    copy = loaded_copy(reader)
    for change in reader.changes():
        for key, value in change.writes:
            copy.objects.pop(key, None)
            if value is not None:
                copy.objects[key] = KeyValue(key, value, change.revision, change.revision)
        copy.revision, copy.now = change.revision, datetime.fromtimestamp(change.at / 1000, UTC)
    if reader.final:
        found = {key: (value, _revision(value)) for key, value in reader.final.items()}
        copy.objects = {key: KeyValue(key, value, at, at) for key, (value, at) in found.items()}
        copy.revision = max([copy.revision, *(at for _, at in found.values())])
    return copy


def _revision(value: bytes) -> int:
    return int(orjson.loads(value)["metadata"]["resourceVersion"])
