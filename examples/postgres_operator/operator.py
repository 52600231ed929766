"""The loop: makes a PostgresCluster what it should be, tells how it is, and lets it go in order."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Forbidden, Kind, NotFound, Operator, Result, Watch, is_true

from .children import (
    CLUSTER,
    IMAGE,
    PORT,
    Cluster,
    backup_claim,
    children,
    final_backup_job,
    secret,
    secret_name,
    selector,
)
from .failover import Lease, LeaseTimes, Pod, Primary, holder_changed, keep_primary
from .kind import Endpoints, PostgresCluster, PostgresSpec, PostgresStatus
from .storage import Claim, StatefulSet, claim_selector, grow_claims, is_making_way

Ctx = Context[PostgresSpec, PostgresStatus]

CronJob = Kind("batch/v1", "CronJob")
Job = Kind("batch/v1", "Job")
Namespace = Kind("v1", "Namespace", namespaced=False)
Secret = Kind("v1", "Secret")
CHILDREN = (
    StatefulSet,
    CronJob,
    Secret,
    Kind("v1", "ConfigMap"),
    Kind("v1", "Service"),
    Kind("v1", "ServiceAccount"),
    Kind("rbac.authorization.k8s.io/v1", "Role"),
    Kind("rbac.authorization.k8s.io/v1", "RoleBinding"),
    Kind("policy/v1", "PodDisruptionBudget"),
)
LOOK_AGAIN = Result(requeue_after=60)


def postgres_operator(new_password: Callable[[], str] = secrets.token_urlsafe, image: str = IMAGE) -> Operator:
    """Return the operator. `image` is the image of the instances; `{version}` and `{major}` in it are replaced."""
    times = LeaseTimes()

    async def reconcile(ctx: Ctx, cluster: Cluster) -> Result | None:
        await ctx.make_once(backup_claim(cluster), owned=False)
        await ctx.make_once(secret(cluster, new_password(), new_password()))
        grown = await grow_claims(ctx, cluster)
        if await is_making_way(ctx, cluster):
            ctx.set_status(phase="Resizing")
            return None  # its end brings us back
        applied = await ctx.apply(*children(cluster, image))
        primary = await keep_primary(ctx, cluster, times)
        report(ctx, cluster, {child["kind"]: child for child in applied}, grown, primary)
        if primary.look_again:
            return Result(requeue_after=primary.look_again)
        return None if grown else LOOK_AGAIN

    async def finalize(ctx: Ctx, cluster: Cluster) -> Result | None:
        times.forget(cluster)
        ctx.set_status(phase="Deleting")
        if not cluster.spec.skipFinalBackup and not await has_final_backup(ctx, cluster, image):
            return LOOK_AGAIN
        if "orphan" in cluster["metadata"]["finalizers"]:
            return LOOK_AGAIN  # its children are being set free; when that is done we see it below
        if not await has_left_its_instances(ctx, cluster):
            await ctx.client.delete_collection(Claim.ref, cluster.namespace, label_selector=claim_selector(cluster))
        await release_password(ctx, cluster)
        return None

    return Operator(
        "postgres-operator",
        Controller(
            PostgresCluster,
            reconcile,
            owns=CHILDREN,
            watches=(
                Watch(Claim, cluster_of),
                Watch(Job, cluster_of),
                Watch(Pod, cluster_of),
                Watch(Lease, cluster_of, when=holder_changed),
            ),
            finalizer="database.example.com/final-backup",
            finalize=finalize,
        ),
    )


def cluster_of(obj: Obj) -> list[str]:
    meta = obj["metadata"]
    name = (meta.get("labels") or {}).get(CLUSTER)
    return [f"{meta['namespace']}/{name}"] if name else []


async def release_password(ctx: Ctx, cluster: Cluster) -> None:
    try:
        await ctx.client.patch(Secret.ref, secret_name(cluster), {"metadata": {"finalizers": None}}, cluster.namespace)
    except NotFound:
        return


async def has_left_its_instances(ctx: Ctx, cluster: Cluster) -> bool:
    """Whether it was deleted with `--cascade=orphan`: then they run on, and need their data."""
    try:
        found = await ctx.client.get(StatefulSet.ref, cluster.name, cluster.namespace)
    except NotFound:
        return False
    return all(each["uid"] != cluster.uid for each in found["metadata"].get("ownerReferences") or ())


async def has_final_backup(ctx: Ctx, cluster: Cluster, image: str) -> bool:
    try:
        job = await ctx.make_once(final_backup_job(cluster, image), owned=False)
    except Forbidden as error:
        namespace = await ctx.client.get(Namespace.ref, cluster.namespace)
        if namespace["metadata"].get("deletionTimestamp"):
            ctx.log.warning("%s goes with its namespace, in which no backup can be made any more", cluster)
            return True
        ctx.condition("FinalBackup", False, "Refused", str(error))
        return False
    if is_true(job, "Complete"):
        return True
    if is_true(job, "Failed"):
        name = job["metadata"]["name"]
        advice = f"delete the Job {name} to try again, or set skipFinalBackup"
        ctx.condition("FinalBackup", False, "Failed", advice)
        ctx.event("FinalBackupFailed", advice, warning=True)
    else:
        ctx.condition("FinalBackup", None, "Running")
    return False


def report(ctx: Ctx, cluster: Cluster, applied: dict[str, Obj], grown: bool, primary: Primary) -> None:
    stateful_set = applied["StatefulSet"]
    seen = stateful_set.get("status") or {}
    wanted, ready = cluster.spec.replication.instances, seen.get("readyReplicas", 0)
    rolled = (
        seen.get("observedGeneration") == stateful_set["metadata"]["generation"]
        and seen.get("updateRevision") == seen.get("currentRevision")
        and seen.get("replicas") == wanted
    )
    before = cluster.status or PostgresStatus()
    if before.phase in ("", "Creating") and ready < wanted:
        phase = "Creating"
    elif primary.vacant:
        phase = "FailingOver"
    elif not rolled:
        phase = "Updating"
    elif not grown:
        phase = "Resizing"
    else:
        phase = "Running" if ready >= wanted else "Degraded"
    backups = applied.get("CronJob", {}).get("status") or {}
    domain = f"{cluster.namespace}.svc"
    ctx.set_status(
        PostgresStatus(
            phase=phase,
            ready=f"{ready}/{wanted}",
            primary=primary.name,
            replicas=seen.get("replicas", 0),
            readyReplicas=ready,
            selector=",".join(f"{key}={value}" for key, value in selector(cluster).items()),
            observedGeneration=cluster.generation,
            endpoints=Endpoints(
                primary=f"{cluster.name}.{domain}:{PORT}",
                read=f"{cluster.name}-read.{domain}:{PORT}",
            ),
            lastBackup=backups.get("lastSuccessfulTime") or before.lastBackup,
        )
    )
    message = f"{ready} of {wanted} instances are ready" + (", there is no primary" if primary.vacant else "")
    ctx.condition("Ready", ready >= wanted and not primary.vacant, phase, message)
