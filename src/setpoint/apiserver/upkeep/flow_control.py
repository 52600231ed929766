"""Maintenance of the priority and fairness configuration: default objects, and the status of FlowSchemas."""

from __future__ import annotations

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.internal_writes import apply_status, delete, ensure, update
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.kinds.bootstrap.initial_objects import (
    AUTO_UPDATE,
    MANDATORY,
    dangling_status,
    flow_schemas,
    priority_levels,
)
from setpoint.meta.conditions import condition_of
from setpoint.meta.decode import decode
from setpoint.meta.errors import Conflict
from setpoint.meta.goformat import parse_bool
from setpoint.meta.objects import Obj

GROUP = "flowcontrol.apiserver.k8s.io"
_CONSUMER = "api-priority-and-fairness-config-consumer-v1"
PRODUCER = "api-priority-and-fairness-config-producer-v1"
FLOW_CONTROL_INTERVAL = 60.0


def flow_schema_status(api: ApiResources) -> KeyedLoop:
    """Return the loop that maintains the condition Dangling of FlowSchemas."""
    schemas, levels = api.registry(GROUP, "flowschemas").cache, api.registry(GROUP, "prioritylevelconfigurations").cache

    async def sync(name: str) -> None:
        entry = schemas.get(schemas.prefix + name)
        if entry is None:
            return
        level = entry.obj["spec"].get("priorityLevelConfiguration", {}).get("name", "")
        status = dangling_status(level, levels.get(levels.prefix + level) is not None, api.clock.now())
        if not _has_condition(entry.obj, status["conditions"][0]):
            await apply_status(api, GROUP, "flowschemas", name, status, _CONSUMER)

    def keys_of_level(_: Entry) -> list[str]:
        return [entry.obj["metadata"]["name"] for entry in schemas.scan()]

    loop = KeyedLoop("flow schemas", api.clock, sync)
    loop.follow(schemas, lambda entry: [entry.obj["metadata"]["name"]])
    loop.follow(levels, keys_of_level)
    return loop


def _has_condition(schema: Obj, wanted: Obj) -> bool:
    condition = condition_of(schema, wanted["type"]) or {}
    return all(condition.get(name) == wanted[name] for name in ("status", "reason", "message"))


class DefaultConfiguration:
    """Creates and updates the default objects, unless a user took them over, and deletes former default objects."""

    def __init__(self, api: ApiResources) -> None:
        self._api = api
        self._checked_changes: tuple[int, ...] = ()
        """The change counters of the two kinds at the last check."""

    async def ensure(self) -> None:
        """Check the objects, unless nothing was written since the last check."""
        kinds = ("prioritylevelconfigurations", "flowschemas")
        changed = tuple(self._api.registry(GROUP, plural).cache.changed for plural in kinds)
        if changed != self._checked_changes:
            await _ensure(self._api)
            self._checked_changes = changed


async def _ensure(api: ApiResources) -> None:
    for plural, defaults in (("prioritylevelconfigurations", priority_levels()), ("flowschemas", flow_schemas())):
        for obj in defaults:
            entry = await ensure(api, GROUP, plural, obj, PRODUCER)
            await _update_default(api, plural, obj, entry)
        wanted = {obj["metadata"]["name"] for obj in defaults}
        for entry in list(api.registry(GROUP, plural).cache.scan()):
            if entry.obj["metadata"]["name"] not in wanted and _annotation(entry.obj) is True:
                try:
                    await delete(api, GROUP, plural, entry)
                except Conflict:
                    continue  # checked again in a minute


def _annotation(obj: Obj) -> bool | None:
    return parse_bool((obj["metadata"].get("annotations") or {}).get(AUTO_UPDATE, ""))


async def _update_default(api: ApiResources, plural: str, defaults: Obj, entry: Entry) -> None:
    meta, auto_update = entry.obj["metadata"], _annotation(entry.obj)
    # Without the annotation, a spec that was never changed may be updated.
    is_managed = meta["name"] in MANDATORY or (auto_update if auto_update is not None else meta.get("generation") == 1)
    registry = api.registry(GROUP, plural)
    spec = decode(registry.resource.type, defaults)
    registry.strategy.default(spec)
    wanted = spec["spec"] if is_managed else entry.obj["spec"]
    if auto_update is is_managed and wanted == entry.obj["spec"]:
        return

    def change(obj: Obj) -> None:
        obj["spec"] = wanted
        annotations = obj["metadata"].setdefault("annotations", {})
        if auto_update is not is_managed:
            annotations[AUTO_UPDATE] = "true" if is_managed else "false"

    await update(api, GROUP, plural, "", meta["name"], change, manager=PRODUCER)
