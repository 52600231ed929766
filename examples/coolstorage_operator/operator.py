"""The loop: every CoolStorage has one bucket at the provider's, as it is described, until it is deleted."""

from __future__ import annotations

from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result

from .kind import CoolStorage, CoolStorageSpec, CoolStorageStatus
from .provider_client import ProviderClient, ProviderDown, Refused

Ctx = Context[CoolStorageSpec, CoolStorageStatus]
Storage = Object[CoolStorageSpec, CoolStorageStatus]

ConfigMap = Kind("v1", "ConfigMap")

PROVISIONING = Result(requeue_after=2)
NEXT_LOOK = Result(requeue_after=60)
"""Nobody tells us what happens outside the cluster: we look."""


def coolstorage_operator(provider: ProviderClient) -> Operator:
    async def reconcile(ctx: Ctx, storage: Storage) -> Result | None:
        try:
            bucket = await as_described(provider, storage)
        except ProviderDown as error:
            ctx.condition("Ready", None, "ProviderDown", str(error))
            return Result(retry=True)  # later each time
        except Refused as error:
            ctx.condition("Ready", False, "Refused", str(error))
            return NEXT_LOOK
        ctx.set_status(
            CoolStorageStatus(bucket["id"], bucket["url"], bucket["state"], observedGeneration=storage.generation)
        )
        if bucket["state"] != "ready":
            ctx.condition("Ready", False, "Provisioning", f"{bucket['id']} is {bucket['state']}")
            return PROVISIONING
        await ctx.apply(connection(storage, bucket))
        ctx.condition("Ready", True, "Provisioned", f"{bucket['id']} is as it should be")
        return NEXT_LOOK

    async def finalize(ctx: Ctx, storage: Storage) -> Result | None:
        if storage.spec.whenDeleted == "Keep":
            return None
        try:
            bucket = await provider.find(storage.uid)
            if bucket is not None:
                await provider.delete(bucket["id"])
        except ProviderDown as error:
            ctx.condition("Ready", None, "ProviderDown", str(error))
            return Result(retry=True)
        return None

    return Operator(
        "coolstorage-operator",
        Controller(
            CoolStorage, reconcile, owns=(ConfigMap,), finalizer="storage.example.com/bucket", finalize=finalize
        ),
    )


async def as_described(provider: ProviderClient, storage: Storage) -> Obj:
    """The object's uid is what the bucket is found by, not the id that we noted: between making a bucket and noting it
    we may crash."""
    wanted = {"sizeGB": storage.spec.sizeGB, "versioning": storage.spec.versioning}
    bucket = await provider.find(storage.uid)
    if bucket is None:
        return await provider.create(storage.uid, {"region": storage.spec.region, **wanted})
    drift = {name: value for name, value in wanted.items() if bucket.get(name) != value}
    return await provider.update(bucket["id"], drift) if drift else bucket


def connection(storage: Storage, bucket: Obj) -> Obj:
    """For Pods that use the bucket."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{storage.name}-connection"},
        "data": {"url": bucket["url"], "region": bucket["region"]},
    }
