"""Delete objects that were applied before and are no longer in the files, found by labels or an ApplySet."""

from __future__ import annotations

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.apply.session import Session
from setpoint.cli.writing import DryRun
from setpoint.cli.writing.annotation import original
from setpoint.client import Resource
from setpoint.meta.errors import ApiError, NotFound

_NAMESPACED = (
    ("v1", "ConfigMap"), ("v1", "Endpoints"), ("v1", "PersistentVolumeClaim"), ("v1", "Pod"),
    ("v1", "ReplicationController"), ("v1", "Secret"), ("v1", "Service"), ("batch/v1", "Job"), ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"), ("apps/v1", "DaemonSet"), ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"),
)  # fmt: skip
_CLUSTER_SCOPED = (("v1", "Namespace"), ("v1", "PersistentVolume"))


async def allowed(call: Invocation) -> list[Resource]:
    """Return the kinds of --prune-allowlist. Raise Failed."""
    found: list[Resource] = []
    for given in call.flags.prune_allowlist:
        parts = given.split("/")
        if len(parts) != 3:
            raise Failed(f"invalid GroupVersionKind format: {given}, please follow <group/version/kind>")
        group, version, kind = parts
        group = "" if group == "core" else group
        try:
            found.append(await call.client.discovery.find((f"{group}/{version}" if group else version, kind)))
        except NotFound as error:
            raise Failed(error.message) from None
    return found


async def default_kinds(call: Invocation) -> list[Resource]:
    call.print_err(
        "Deprecated: setpoint apply will no longer prune non-namespaced resources by default when used with the "
        "--namespace flag in a future release. To preserve the current behaviour, list the resources you want to "
        "target explicitly in the --prune-allowlist flag."
    )
    return [await call.client.discovery.find(kind) for kind in (*_NAMESPACED, *_CLUSTER_SCOPED)]


async def prune(session: Session) -> None:
    if session.apply_set is not None:
        await session.apply_set.prune(session)
        return
    kinds = session.prunable or await default_kinds(session.call)
    if session.call.namespace_given:
        session.namespaces.add(session.call.namespace)
    for namespace in sorted(session.namespaces):
        for kind in kinds:
            if kind.namespaced:
                await _prune_kind(session, kind, namespace, "namespaced")
    for kind in kinds:
        if not kind.namespaced:
            await _prune_kind(session, kind, "", "nonNamespaced")


async def prunable(session: Session, kind: Resource, namespace: str) -> list[dict[str, object]]:
    """Return applied objects that match the labels and were not applied in this run."""
    found = await session.call.client.list(kind, namespace, label_selector=session.call.flags.selector)
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
