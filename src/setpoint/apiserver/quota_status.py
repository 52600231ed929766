"""Writes the usage that admission has charged into a quota's status."""

from __future__ import annotations

from setpoint.apiserver.own_writes import own_call
from setpoint.apiserver.ownership import own
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj


async def update_usage(api: ApiServer, quota: Obj, used: dict[str, str]) -> None:
    """Raises Conflict if `quota` is no longer what is stored, NotFound if it is gone."""
    registry = api.registry("", "resourcequotas")
    meta = quota["metadata"]
    call = own_call(api, registry, meta["namespace"], meta["name"], "update", subresource="status")

    async def change(live: Obj | None) -> Obj:
        # The quota's own revision goes along: it is what must not have changed.
        obj = {**quota, "metadata": dict(meta), "status": {**quota.get("status", {}), "used": used}}
        own(call, registry, live, obj)
        return obj

    await registry.update(call, meta["name"], change, strategy=registry.strategy.subresources["status"], retry=False)
