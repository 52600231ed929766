"""Writes the usage that admission has charged into a quota's status."""

from __future__ import annotations

from setpoint.apiserver.own_writes import update
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.errors import Conflict, NotFound

_PLURAL = "resourcequotas"


async def update_usage(api: ApiServer, quota: Obj, used: dict[str, str]) -> None:
    """Raises Conflict if `quota` is no longer what is stored, NotFound if it is gone."""
    meta = quota["metadata"]
    namespace, name = meta["namespace"], meta["name"]

    def charge(obj: Obj) -> None:
        if obj["metadata"].get("resourceVersion") != meta["resourceVersion"]:
            raise Conflict.modified("", _PLURAL, name)
        obj["status"] = {**obj.get("status", {}), "used": used}

    if await update(api, "", _PLURAL, namespace, name, charge, subresource="status") is None:
        raise NotFound.of("", _PLURAL, name)
