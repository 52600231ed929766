"""When old, secret-based service account tokens are used, and since when that is noted."""

from __future__ import annotations

from datetime import datetime

from setpoint.apiserver.own_writes import ensure, update
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.tokens import LAST_USED
from setpoint.apiserver.upkeep.loop import KeyedLoop
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


def token_use(api: ApiServer) -> KeyedLoop:
    """Each Secret whose token is used says on which day it was, the last time."""

    async def mark(key: str) -> None:
        namespace, _, name = key.partition("/")
        today = api.clock.now().strftime("%Y-%m-%d")

        def used(obj: Obj) -> None:
            obj["metadata"].setdefault("labels", {})[LAST_USED] = today

        await update(api, "", "secrets", namespace, name, used)

    loop = KeyedLoop("token use", api.clock, mark)
    api.secret_token_used = lambda namespace, name: loop.due(f"{namespace}/{name}")
    return loop


def _is_date(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return True
