"""Priority and fairness: what is shipped stays as shipped, and each FlowSchema says whether its level exists."""

from __future__ import annotations

from setpoint.apiserver.own_writes import apply_status, delete, ensure, update
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.bootstrap.flowcontrol import AUTO_UPDATE, MANDATORY, dangling_status, flow_schemas, priority_levels
from setpoint.meta.decode import decode
from setpoint.meta.errors import Conflict

GROUP = "flowcontrol.apiserver.k8s.io"
CONSUMER = "api-priority-and-fairness-config-consumer-v1"
PRODUCER = "api-priority-and-fairness-config-producer-v1"
EVERY = 60.0

# As Go reads a truth value from text.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def flow_schema_status(api: ApiServer) -> KeyedLoop:
    schemas, levels = api.registry(GROUP, "flowschemas").cache, api.registry(GROUP, "prioritylevelconfigurations").cache

    async def sync(name: str) -> None:
        entry = schemas.get(schemas.prefix + name)
        if entry is None:
            return
        level = entry.obj["spec"].get("priorityLevelConfiguration", {}).get("name", "")
        status = dangling_status(level, levels.get(levels.prefix + level) is not None, api.clock.now())
        if not _says(entry.obj, status["conditions"][0]):
            await apply_status(api, GROUP, "flowschemas", name, status, CONSUMER)

    def of_level(_: Entry) -> list[str]:
        return [entry.obj["metadata"]["name"] for entry in schemas.scan()]

    loop = KeyedLoop("flow schemas", api.clock, sync)
    loop.follow(schemas, lambda entry: [entry.obj["metadata"]["name"]])
    loop.follow(levels, of_level)
    return loop


def _says(schema: Obj, wanted: Obj) -> bool:
    for condition in (schema.get("status") or {}).get("conditions") or ():
        if condition.get("type") == wanted["type"]:
            return all(condition.get(name) == wanted[name] for name in ("status", "reason", "message"))
    return False


class Configuration:
    """What is shipped exists, and is as it is shipped unless somebody took it over; what was once shipped goes."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._in_order: tuple[int, ...] = ()
        """The last changes to the two kinds when everything was looked at."""

    async def ensure(self) -> None:
        """Where nobody has written since the last time, there is nothing to look at."""
        kinds = ("prioritylevelconfigurations", "flowschemas")
        changed = tuple(self._api.registry(GROUP, plural).cache.changed for plural in kinds)
        if changed != self._in_order:
            await _ensure(self._api)
            self._in_order = changed


async def _ensure(api: ApiServer) -> None:
    for plural, shipped in (("prioritylevelconfigurations", priority_levels()), ("flowschemas", flow_schemas())):
        for obj in shipped:
            entry = await ensure(api, GROUP, plural, obj, PRODUCER)
            await _revise(api, plural, obj, entry)
        wanted = {obj["metadata"]["name"] for obj in shipped}
        for entry in list(api.registry(GROUP, plural).cache.scan()):
            if entry.obj["metadata"]["name"] not in wanted and _annotation(entry.obj) is True:
                try:
                    await delete(api, GROUP, plural, entry)
                except Conflict:
                    continue  # looked at again in a minute


def _annotation(obj: Obj) -> bool | None:
    text = (obj["metadata"].get("annotations") or {}).get(AUTO_UPDATE)
    return True if text in _TRUE else False if text in _FALSE else None


async def _revise(api: ApiServer, plural: str, shipped: Obj, entry: Entry) -> None:
    meta, said = entry.obj["metadata"], _annotation(entry.obj)
    # Without a word on it, a spec that was never changed may be ours to change.
    follows = meta["name"] in MANDATORY or (said if said is not None else meta.get("generation") == 1)
    registry = api.registry(GROUP, plural)
    spec = decode(registry.resource.type, shipped)
    registry.strategy.default(spec)
    wanted = spec["spec"] if follows else entry.obj["spec"]
    if said is follows and wanted == entry.obj["spec"]:
        return

    def change(obj: Obj) -> None:
        obj["spec"] = wanted
        annotations = obj["metadata"].setdefault("annotations", {})
        if said is not follows:
            annotations[AUTO_UPDATE] = "true" if follows else "false"

    await update(api, GROUP, plural, "", meta["name"], change, manager=PRODUCER)
