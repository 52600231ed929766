"""Delete objects that were applied before and are no longer in the files, found by labels or an ApplySet.

The parent object of an ApplySet records the kinds and namespaces of its members, which carry its label.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.apply.session import Session
from setpoint.cli.writing import DryRun
from setpoint.cli.writing.annotation import original
from setpoint.client import Resource
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

TOOLING = "applyset.kubernetes.io/tooling"
NAMESPACES = "applyset.kubernetes.io/additional-namespaces"
KINDS = "applyset.kubernetes.io/contains-group-kinds"
OLD_KINDS = "applyset.kubernetes.io/contains-group-resources"
ID = "applyset.kubernetes.io/id"
PART_OF = "applyset.kubernetes.io/part-of"
PARENT_TYPE = "applyset.kubernetes.io/is-parent-type"
# kubectl's own name, so that the sets can be used with both programs.
_TOOL, _VERSION = "kubectl", "v1.37.0"
_MANAGER = f"{_TOOL}-applyset"
_BUILT_IN = (("", "secrets"), ("", "configmaps"))


async def parse_parent(invocation: Invocation, given: str) -> ApplySet:
    """Parse `[RESOURCE][.GROUP]/NAME`. Raise Failed."""
    kind, slash, name = given.partition("/")
    if not slash:
        kind, name = "secrets", given
    try:
        if not name:
            raise NotFound("name cannot be blank")
        resource = await invocation.client.discovery.search(kind)
    except NotFound as error:
        raise Failed(f"invalid parent reference {quote(given)}: {error.message}") from None
    namespace = invocation.namespace if resource.namespaced and invocation.namespace_given else ""
    return ApplySet(resource, name, namespace)


class ApplySet:
    def __init__(self, resource: Resource, name: str, namespace: str) -> None:
        self.resource, self.name, self.namespace = resource, name, namespace
        self._before: dict[str, Resource] = {}
        """The resources that the parent recorded before this run, by `Kind.group`."""
        self._now: dict[str, Resource] = {}
        self._namespaces_before: set[str] = set()
        self._namespaces_now: set[str] = set()

    def __str__(self) -> str:
        return f"{self.resource.plural}.{self.resource.group}/{self.name}"

    @property
    def id(self) -> str:
        text = ".".join((self.name, self.namespace, self.resource.kind, self.resource.group))
        return f"applyset-{urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip('=')}-v1"

    async def validate(self, invocation: Invocation) -> None:
        errors: list[Exception] = []
        if self.resource.namespaced and not self.namespace:
            errors.append(Failed("namespace is required to use namespace-scoped ApplySet"))
        if (self.resource.group, self.resource.plural) not in _BUILT_IN:
            definitions = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
            found = await invocation.client.list(definitions, label_selector=PARENT_TYPE)
            if str(self.resource) not in {one["metadata"]["name"] for one in found.items}:
                of = self.resource
                what = quote(f"{of.group}/{of.version}, Resource={of.plural}")
                errors.append(Failed(f"resource {what} is not permitted as an ApplySet parent"))
        raise_all(errors)

    def labelled(self, targets: list[Target]) -> list[Target]:
        done: list[Target] = []
        for target in targets:
            assert target.obj is not None
            meta = target.obj.get("metadata") or {}
            labels = meta.get("labels") or {}
            if PART_OF in labels:
                raise Failed(f"ApplySet label {quote(PART_OF)} already set in input data")
            obj = {**target.obj, "metadata": {**meta, "labels": {**labels, PART_OF: self.id}}}
            done.append(target._replace(obj=obj))
        return done

    async def before_apply(self, session: Session, targets: list[Target]) -> None:
        """Record all members in the parent before they are created, so that none is lost if this run is interrupted."""
        await self._fetch(session.invocation)
        for target in targets:
            self._now.setdefault(_kind_name(target.resource), target.resource)
            if target.namespace:
                self._namespaces_now.add(target.namespace)
        await self._update(session, {**self._before, **self._now}, self._namespaces_before | self._namespaces_now)

    async def prune(self, session: Session) -> None:
        for target in await self.prunable(session.invocation, session.uids):
            if session.dry is not DryRun.CLIENT:
                try:
                    await session.delete(target.resource, target.name, target.namespace)
                except ApiError as error:
                    where = f"{target.namespace}/{target.name}" if target.namespace else target.name
                    raise Failed(f"pruning {_kind_name(target.resource)} {where}: {error.message}") from None
            session.results.add(target.obj or {}, "pruned")
        try:
            await self._update(session, self._now, self._namespaces_now)
        except Failed as error:
            raise Failed(f"apply and prune succeeded, but ApplySet update failed: {error}") from None

    async def prunable(self, invocation: Invocation, uids: set[str]) -> list[Target]:
        found: list[Target] = []
        for resource in self._before.values():
            for namespace in sorted(self._namespaces_before) if resource.namespaced else [""]:
                try:
                    page = await invocation.client.list(resource, namespace, label_selector=f"{PART_OF}={self.id}")
                except ApiError as error:
                    what = f"{resource.group}/{resource.version}, Kind={resource.kind}"
                    raise Failed(f"listing {what} objects for pruning: {error.message}") from None
                found += [
                    Target(resource, namespace, obj["metadata"]["name"], obj)
                    for obj in page.items
                    if obj["metadata"].get("uid") not in uids
                ]
        return found

    async def fetch(self, invocation: Invocation) -> None:
        """Read what the parent has recorded."""
        await self._fetch(invocation)

    async def _fetch(self, invocation: Invocation) -> None:
        try:
            parent = await invocation.client.get(self.resource, self.name, self.namespace)
        except NotFound:
            if (self.resource.group, self.resource.plural) not in _BUILT_IN:
                raise Failed("custom resource ApplySet parents cannot be created automatically") from None
            return
        except ApiError as error:
            raise Failed(f"failed to fetch ApplySet parent object {quote(str(self))}: {error.message}") from None
        annotations = parent["metadata"].get("annotations") or {}
        self._check(annotations, parent["metadata"].get("labels") or {})
        await self._read_kinds(invocation, annotations)
        given = annotations.get(NAMESPACES)
        self._namespaces_before = set(given.split(",")) if given else set()
        if self.resource.namespaced:
            self._namespaces_before.add(self.namespace)

    def _check(self, annotations: dict[str, str], labels: dict[str, str]) -> None:
        what = f"ApplySet parent object {quote(str(self))}"
        if TOOLING not in annotations:
            raise Failed(f"{what} already exists and is missing required annotation {quote(TOOLING)}")
        tool = annotations[TOOLING].rpartition("/")[0] or annotations[TOOLING]
        if tool != _TOOL:
            raise Failed(f"{what} already exists and is managed by tooling {quote(tool)} instead of {quote(_TOOL)}")
        if ID not in labels:
            raise Failed(f"{what} exists and does not have required label {ID}")
        if labels[ID] != self.id:
            raise Failed(
                f"{what} exists and has incorrect value for label {quote(ID)} (got: {labels[ID]}, want: {self.id})"
            )

    async def _read_kinds(self, invocation: Invocation, annotations: dict[str, str]) -> None:
        names, resources = annotations.get(KINDS), annotations.get(OLD_KINDS)
        if names is None and not resources:
            raise Failed(
                f"parsing ApplySet annotation on {quote(str(self))}: kubectl requires the {quote(KINDS)} annotation to "
                "be set on all ApplySet parent objects"
            )
        for name in (names if names is not None else resources or "").split(","):
            if not name:
                continue
            try:
                resource = await invocation.client.discovery.search(name)
            except NotFound:
                raise Failed(
                    f"parsing ApplySet annotation on {quote(str(self))}: could not find mapping for kind in "
                    f"{quote(KINDS)} annotation: no matches for kind {quote(name)}"
                ) from None
            self._before[_kind_name(resource)] = resource

    async def _update(self, session: Session, kinds: dict[str, Resource], namespaces: set[str]) -> None:
        if session.dry is DryRun.CLIENT:
            return
        meta: Obj = {
            "name": self.name,
            "annotations": {
                TOOLING: f"{_TOOL}/{_VERSION}",
                KINDS: ",".join(sorted(kinds)),
                NAMESPACES: ",".join(sorted(namespaces - {self.namespace})),
            },
            "labels": {ID: self.id},
        }
        if self.namespace:
            meta["namespace"] = self.namespace
        parent = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": meta}
        for force in (False, True):
            try:
                await session.invocation.client.apply(
                    parent,
                    resource=self.resource,
                    field_manager=_MANAGER,
                    force=force,
                    dry_run=session.dry is DryRun.SERVER,
                    field_validation=session.directive,
                )
                return
            except ApiError as error:
                if force or not isinstance(error, Conflict):
                    raise Failed(f"failed to update ApplySet: {error.message}") from None
                session.invocation.print_err(
                    f"WARNING: failed to update ApplySet: {error.message}\nApplySet field manager {_MANAGER} should "
                    "own these fields. Retrying with conflicts forced."
                )


def _kind_name(resource: Resource) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


_NAMESPACED = (
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
)
_CLUSTER_SCOPED = (("v1", "Namespace"), ("v1", "PersistentVolume"))


async def allowed(invocation: Invocation) -> list[Resource]:
    """Return the kinds of --prune-allowlist. Raise Failed."""
    found: list[Resource] = []
    for given in invocation.flags.prune_allowlist:
        parts = given.split("/")
        if len(parts) != 3:
            raise Failed(f"invalid GroupVersionKind format: {given}, please follow <group/version/kind>")
        group, version, kind = parts
        group = "" if group == "core" else group
        try:
            found.append(await invocation.client.discovery.find((f"{group}/{version}" if group else version, kind)))
        except NotFound as error:
            raise Failed(error.message) from None
    return found


async def default_kinds(invocation: Invocation) -> list[Resource]:
    invocation.print_err(
        "Deprecated: setpoint apply will no longer prune non-namespaced resources by default when used with the "
        "--namespace flag in a future release. To preserve the current behaviour, list the resources you want to "
        "target explicitly in the --prune-allowlist flag."
    )
    return [await invocation.client.discovery.find(kind) for kind in (*_NAMESPACED, *_CLUSTER_SCOPED)]


async def prune(session: Session) -> None:
    if session.apply_set is not None:
        await session.apply_set.prune(session)
        return
    kinds = session.prunable or await default_kinds(session.invocation)
    if session.invocation.namespace_given:
        session.namespaces.add(session.invocation.namespace)
    for namespace in sorted(session.namespaces):
        for kind in kinds:
            if kind.namespaced:
                await _prune_kind(session, kind, namespace, "namespaced")
    for kind in kinds:
        if not kind.namespaced:
            await _prune_kind(session, kind, "", "nonNamespaced")


async def prunable(session: Session, kind: Resource, namespace: str) -> list[dict[str, object]]:
    """Return applied objects that match the labels and were not applied in this run."""
    found = await session.invocation.client.list(kind, namespace, label_selector=session.invocation.flags.selector)
    return [obj for obj in found.items if original(obj) is not None and obj["metadata"].get("uid") not in session.uids]


async def _prune_kind(session: Session, kind: Resource, namespace: str, scope: str) -> None:
    try:
        for obj in await prunable(session, kind, namespace):
            if session.dry is not DryRun.CLIENT:
                await session.delete(kind, obj["metadata"]["name"], namespace)  # type: ignore[index]
            session.results.add(obj, "pruned")
    except ApiError as error:
        what = f"{kind.group}/{kind.version}, Kind={kind.kind}"
        raise Failed(f"error pruning {scope} object {what}: {error.message}") from None
