"""Storage that grows: the claims, and the StatefulSet whose template for claims cannot be changed."""

from __future__ import annotations

from typing import Any

from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Forbidden, Kind, compare_quantities

from .children import Cluster, selector

Claim = Kind("v1", "PersistentVolumeClaim")
StatefulSet = Kind("apps/v1", "StatefulSet")


async def grow_claims(ctx: Context[Any, Any], cluster: Cluster) -> bool:
    """Asks for more where claims are smaller than they should be. Says whether all have what they need; a condition
    tells why not."""
    wanted, growing = cluster.spec.storageSize, []
    for claim in await claims(ctx, cluster):
        name = claim["metadata"]["name"]
        if (claim.get("status") or {}).get("phase") != "Bound":
            continue  # only then may it grow; we are told when it is
        if compare_quantities(_requested(claim), wanted) < 0:
            size = {"resources": {"requests": {"storage": wanted}}}
            try:
                await ctx.client.patch(Claim.ref, name, {"spec": size}, cluster.namespace)
            except Forbidden as error:
                ctx.condition("StorageGrown", False, "Refused", str(error))
                return False
        if compare_quantities(claim["status"]["capacity"]["storage"], wanted) < 0:
            growing.append(name)
    if growing:
        ctx.condition("StorageGrown", False, "Growing", f"waiting for {', '.join(sorted(growing))}")
    else:
        ctx.condition("StorageGrown", True, "AsWanted", f"every volume has {wanted}")
    return not growing


async def claims(ctx: Context[Any, Any], cluster: Cluster) -> list[Obj]:
    return (await ctx.client.list(Claim.ref, cluster.namespace, label_selector=claim_selector(cluster))).items


def claim_selector(cluster: Cluster) -> str:
    return ",".join(f"{key}={value}" for key, value in selector(cluster).items())


async def is_making_way(ctx: Context[Any, Any], cluster: Cluster) -> bool:
    """Whether a StatefulSet with another claim template is on its way out. Its Pods run on without it, and the next one
    adopts them. Until it is gone nothing can be applied in its place."""
    for stateful_set in ctx.children(StatefulSet):
        meta = stateful_set["metadata"]
        if meta.get("deletionTimestamp"):
            return True
        template = stateful_set["spec"]["volumeClaimTemplates"][0]
        if compare_quantities(_requested(template), cluster.spec.storageSize) != 0:
            # With the uid: if this is an old picture, the one that is there by now is left alone.
            await ctx.client.delete(
                StatefulSet.ref, meta["name"], cluster.namespace, propagation="Orphan", uid=meta["uid"]
            )
            return True
    return False


def _requested(claim: Obj) -> str:
    size: str = claim["spec"]["resources"]["requests"]["storage"]
    return size
