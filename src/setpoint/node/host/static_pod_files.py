"""Reads the files of static Pods, and notices when they change.

A file is the manifest of one Pod, in YAML or JSON. The Pod gets the defaults and passes the validation of the API, but
it never depends on the API: a file with a reference to an API object is refused.
"""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from setpoint.kinds.core.pod import PodStrategy
from setpoint.kinds.strategy import Context
from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.field import Errors, aggregate_message
from setpoint.meta.objectmeta import validate_object_meta
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_micro
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.file_watch import DirectoryWatch
from setpoint.node.mirror_pods import CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE
from setpoint.reconcile import key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.node")

_MAX_SIZE: Final = 10 << 20
_READ_PERIOD: Final = 20.0
"""Seconds between reads of all files, also if no change was noticed."""
_MISSING_PERIOD: Final = 1.0
"""Seconds between checks for a directory that does not exist yet."""
_SETTLE_SECONDS: Final = 0.1
"""Seconds without a further change after which the files are read: a program may still be writing one."""
_MAX_SETTLE_SECONDS: Final = 2.0
_NODE_CRITICAL: Final = ("system-node-critical", 2_000_001_000)
_PLAIN_VOLUMES: Final = frozenset(
    {
        *("awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc", "flexVolume"),
        *("flocker", "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk"),
        *("portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
    }
)
"""The volumes that need no API object."""
_API_VOLUMES: Final = {
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_API_PROJECTIONS: Final = {
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
_SECRET_FIELDS: Final = (
    *(("cephfs", "secretRef"), ("cinder", "secretRef"), ("flexVolume", "secretRef"), ("iscsi", "secretRef")),
    *(("rbd", "secretRef"), ("scaleIO", "secretRef"), ("storageos", "secretRef"), ("azureFile", "secretName")),
    *(("secret", "secretName"), ("secret", "name"), ("csi", "nodePublishSecretRef")),
)
"""The fields of volumes, and of their projected sources, that name a Secret."""


class StaticPodError(ValueError):
    """The file is not the manifest of a static Pod; the message is the reason."""


# -- one file ----------------------------------------------------------------------------------------------------------


def static_pod(data: bytes, path: Path, node: str, now: datetime) -> Pod:
    """Return the static Pod that a file describes. Its uid depends on the content, the path and the node alone, so that
    a restarted agent finds the same Pod, and a changed file is another Pod. Raise StaticPodError."""
    try:
        found = parse_yaml(data)[0]
        if not isinstance(found, Mapping) or (found.get("apiVersion"), found.get("kind")) != ("v1", "Pod"):
            raise StaticPodError(f"{path}: couldn't parse as pod(it is not a v1 Pod), please check config file")
        pod: Obj = decode(type_of(definition_for("", "v1", "Pod")), found)
    except (BodyError, DecodeError) as error:
        raise StaticPodError(f"{path}: couldn't parse as pod({error}), please check config file") from None
    if not (pod.get("metadata") or {}).get("name"):
        raise StaticPodError("invalid pod: name is needed for the pod")
    identity = json.dumps([found, f"host:{node}", f"file:{path}"], sort_keys=True, default=str)
    _complete(pod, node, sha256(identity.encode()).hexdigest()[:32], now)
    strategy, errors = PodStrategy(), cast(Errors, [])
    strategy.default(pod)
    strategy.prepare_for_create(pod, Context(now, from_file=True))
    del pod["metadata"]["generation"]
    validate_object_meta(pod["metadata"], True, strategy.validate_name, "metadata", errors)
    strategy.validate(pod, errors, Context(now, from_file=True))
    if errors:
        raise StaticPodError(f"invalid pod: {aggregate_message(errors)}")
    resource = _api_reference(pod["spec"])
    if resource:
        raise StaticPodError(f"static pods may not reference {resource}")
    return cast("Pod", pod)


def _complete(pod: Obj, node: str, uid: str, now: datetime) -> None:
    """Set what a static Pod does not take from its file."""
    meta, spec = pod["metadata"], pod.setdefault("spec", {})
    pod["apiVersion"], pod["kind"] = "v1", "Pod"
    kept = {name: meta[name] for name in ("labels", "annotations", "finalizers") if meta.get(name)}
    pod["metadata"] = {
        "name": f"{meta['name']}-{node.lower()}",
        "namespace": meta.get("namespace") or "default",
        "uid": uid,
        "creationTimestamp": None,
        **kept,
        "annotations": {
            **(meta.get("annotations") or {}),
            CONFIG_HASH: uid,
            CONFIG_SEEN: format_micro(now),
            CONFIG_SOURCE: "file",
        },
    }
    spec["nodeName"] = node
    tolerations = [each for each in spec.get("tolerations") or () if not _tolerates_no_execute(each)]
    spec["tolerations"] = [*tolerations, {"operator": "Exists", "effect": "NoExecute"}]


def _tolerates_no_execute(toleration: ObjView) -> bool:
    """Return whether this is the toleration that every static Pod has."""
    given = {name: value for name, value in toleration.items() if value}
    return given == {"operator": "Exists", "effect": "NoExecute"}


def _api_reference(spec: ObjView) -> str:
    """Return the resource of the API that a Pod refers to, in the kubelet's words; empty if it refers to none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    volumes = spec.get("volumes") or ()
    containers = [
        each for name in ("initContainers", "containers", "ephemeralContainers") for each in spec.get(name) or ()
    ]
    sources = [*volumes]
    for volume in volumes:
        sources += (volume.get("projected") or {}).get("sources") or ()
    named = any((each.get(kind) or {}).get(name) for each in sources for kind, name in _SECRET_FIELDS)
    if spec.get("imagePullSecrets") or named or any(_environment_sources(containers, "secret")):
        return "secrets"
    if any(each.get("configMap") for each in sources) or any(_environment_sources(containers, "configMap")):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in volumes:
        kinds = [name for name in volume if name != "name"]
        for source in (volume.get("projected") or {}).get("sources") or ():
            for name, resource in _API_PROJECTIONS.items():
                if source.get(name) is not None:
                    return resource
            if source.get("downwardAPI") is None:
                raise StaticPodError(f'unknown source for projected volume "{volume["name"]}"')
        for name in kinds:
            if name in _API_VOLUMES:
                return _API_VOLUMES[name]
            if name != "projected" and name not in _PLAIN_VOLUMES:
                raise StaticPodError(f'unknown volume type for volume  "{volume["name"]}"')
    return ""


def _environment_sources(containers: list[ObjView], kind: str) -> Iterator[Any]:
    """Yield the references of environments to objects: Secrets for `secret`, ConfigMaps for `configMap`."""
    for container in containers:
        for each in container.get("envFrom") or ():
            if each.get(f"{kind}Ref") is not None:
                yield each
        for each in container.get("env") or ():
            if (each.get("valueFrom") or {}).get(f"{kind}KeyRef") is not None:
                yield each


def priority_warning(pod: ObjView) -> str:
    """Return the kubelet's warning about the priority of a static Pod; empty if there is none."""
    name, priority = pod["spec"].get("priorityClassName") or "", pod["spec"].get("priority")
    if priority is None and name:
        return (
            "Static pod has priorityClassName and nil priority. Kubelet will not use priorityClassName, and mirror "
            "pod creation may fail."
        )
    if priority is not None and not name:
        return (
            "Static pod has priority without priorityClassName. Mirror pod creation may fail if the default priority "
            "class doesn't match the given priority."
        )
    if priority is not None and (name, priority) != _NODE_CRITICAL:
        return (
            f"Static pod has a priority other than {_NODE_CRITICAL[1]} or a priorityClassName other than "
            f"{_NODE_CRITICAL[0]}. Mirror pod may be attempted to be evicted from the node ineffectively."
        )
    return ""


# -- all files ---------------------------------------------------------------------------------------------------------


_Place = tuple[Path, int, int]
"""A directory, and the device and inode that it has now."""


@dataclass(slots=True)
class _File:
    """A file of the last read."""

    data: bytes | None = None
    pod: Pod | None = None
    """The Pod that the file describes, or described when it was valid last; None if it never was."""
    problem: str = ""
    """Why the file is not valid now; empty if it is."""
    invalid_since: float = 0.0
    """The monotonic time at which the file became invalid."""


@dataclass(slots=True)
class StaticPodFiles:
    """Follows a directory of manifests, or one manifest."""

    path: Path
    node: str
    pool: BlockingPool
    clock: Clock
    changed: Callable[[Mapping[str, Pod]], None]
    """Called after each read with all static Pods by namespace and name."""
    _files: dict[Path, _File] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    """The problems of the last read, which were logged."""

    async def run(self) -> None:
        """Read the files, and again whenever they change, until cancelled."""
        watch: DirectoryWatch | None = None
        watched: _Place | None = None
        try:
            while True:
                # The watch begins before the files are read, so that no change is missed.
                place = await self.pool.run(_place, self.path)
                if place != watched and watch is not None:
                    watch.close()
                    watch = None
                if place is not None and watch is None:
                    watch = await DirectoryWatch.open(place[0], self.pool, self.clock, removals=True)
                watched = place
                await self.read()
                if watch is None:
                    await self.clock.sleep(_MISSING_PERIOD)
                elif await watch.changed(_READ_PERIOD):
                    await self._settle(watch)
        finally:
            if watch is not None:
                watch.close()

    async def read(self) -> None:
        """Read all files once."""
        now, problems = self.clock.now(), set[str]()
        try:
            contents = await self.pool.run(_read_files, self.path)
        except FileNotFoundError:
            contents = {}
            problems.add(f"{self.path} does not exist: there are no static Pods")
        except OSError as error:
            self._report({f"{self.path} cannot be read: {error.strerror or error}"})
            return
        self._files = {path: self._parse(path, content, now) for path, content in contents.items()}
        pods: dict[str, Pod] = {}
        for path, found in self._files.items():
            if found.problem:
                problems.add(f"the static Pod file {path} is ignored: {found.problem}")
            expired = bool(found.problem) and self.clock.monotonic() - found.invalid_since >= _READ_PERIOD
            if found.pod is None or expired:
                continue
            key = key_of(found.pod)
            if key in pods:
                problems.add(f"the static Pod {key} is in several files: {path} counts")
            pods[key] = found.pod
            warning = priority_warning(found.pod)
            if warning:
                problems.add(f"static Pod {key}: {warning}")
        self._report(problems)
        self.changed(pods)

    def _parse(self, path: Path, content: bytes | OSError, now: datetime) -> _File:
        """Return a file with its Pod. One that has become invalid keeps its Pod for a while: it may be incomplete."""
        known = self._files.get(path) or _File()
        if isinstance(content, bytes) and content == known.data:
            return known
        try:
            if isinstance(content, OSError):
                raise StaticPodError(content.strerror or str(content))
            pod = static_pod(content, path, self.node, now)
        except StaticPodError as error:
            since = known.invalid_since if known.problem else self.clock.monotonic()
            return _File(content if isinstance(content, bytes) else None, known.pod, str(error), since)
        return _File(content, pod)

    def _report(self, problems: set[str]) -> None:
        """Log the problems that were not there in the last read."""
        for problem in sorted(problems - self._reported):
            log.warning("%s", problem)
        self._reported = problems

    async def _settle(self, watch: DirectoryWatch) -> None:
        """Return when the files have not changed for a moment."""
        until = self.clock.monotonic() + _MAX_SETTLE_SECONDS
        while self.clock.monotonic() < until and not watch.polls:
            if not await watch.changed(_SETTLE_SECONDS):
                return


def _place(path: Path) -> _Place | None:
    """Return the directory to watch, with its device and inode; None if it does not exist. Blocks."""
    directory = path.parent if path.is_file() else path
    try:
        found = directory.stat()
    except OSError:
        return None
    return (directory, found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _read_files(path: Path) -> dict[Path, bytes | OSError]:
    """Return the contents of the manifests. Hidden files and directories are left out. Blocks. Raise OSError."""
    if not stat.S_ISDIR(path.stat().st_mode):
        return {path: _read_file(path)}
    found: dict[Path, bytes | OSError] = {}
    for each in sorted(path.iterdir()):
        if not each.name.startswith("."):
            try:
                found[each] = _read_file(each)
            except FileNotFoundError:
                continue  # removed meanwhile
    return found


def _read_file(path: Path) -> bytes | OSError:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return OSError("it is a directory, and directories are not searched")
        if not stat.S_ISREG(mode):
            return OSError("it is not a regular file")
        with path.open("rb") as file:
            data = file.read(_MAX_SIZE + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        return error
    return data if len(data) <= _MAX_SIZE else OSError(f"it is longer than {_MAX_SIZE >> 20} MB")
