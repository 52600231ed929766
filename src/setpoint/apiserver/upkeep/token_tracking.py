"""Since when the use of old, secret-based service account tokens is noted."""

from __future__ import annotations

from datetime import datetime

from setpoint.apiserver.own_writes import ensure, update
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj

EVERY = 1800.0
_NAME, _NAMESPACE = "kube-apiserver-legacy-service-account-token-tracking", "kube-system"


async def ensure_token_tracking(api: ApiServer) -> None:
    today = api.clock.now().strftime("%Y-%m-%d")
    wanted: Obj = {"metadata": {"name": _NAME, "namespace": _NAMESPACE}, "data": {"since": today}}
    entry = await ensure(api, "", "configmaps", wanted)
    if not _is_date((entry.obj.get("data") or {}).get("since", "")):
        await update(
            api, "", "configmaps", _NAMESPACE, _NAME, lambda obj: obj.setdefault("data", {}).update(since=today)
        )


def _is_date(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return True
