"""The default roles and bindings, restored at every start: what is missing is added, what was added is left.

Whoever wants one of them as it is annotates it with `rbac.authorization.kubernetes.io/autoupdate: "false"`."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.apiserver import own_writes
from setpoint.apiserver.filters.rbac import GROUP
from setpoint.apiserver.filters.rbac_rules import uncovered
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.bootstrap.rbac import AUTO_UPDATE
from setpoint.meta.errors import Conflict

Restore = Callable[[Obj, Obj], Obj]
"""From what is there and what is expected to what has to change: top-level fields, `metadata` in part."""


async def restore(api: ApiServer, plural: str, expected: Obj) -> None:
    meta = expected["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    existing = own_writes.current(api, GROUP, plural, namespace, name)
    if existing is None:
        await own_writes.ensure(api, GROUP, plural, expected)
        return
    if (existing.obj["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return
    missing: Restore = missing_of_role if plural in ("roles", "clusterroles") else missing_of_binding
    if "roleRef" in expected and expected["roleRef"] != existing.obj["roleRef"]:
        # The role of a binding cannot be changed.
        try:
            await own_writes.delete(api, GROUP, plural, existing)
        except Conflict:
            return
        await own_writes.ensure(api, GROUP, plural, expected)
    elif missing(existing.obj, expected):

        def change(obj: Obj) -> None:
            wanted = missing(obj, expected)
            obj["metadata"] |= wanted.pop("metadata", {})
            for field, value in wanted.items():
                if value is None:
                    obj.pop(field, None)
                else:
                    obj[field] = value

        await own_writes.update(api, GROUP, plural, namespace, name, change)


def missing_of_role(existing: Obj, expected: Obj) -> Obj:
    wanted = _missing_metadata(existing, expected)
    rules, defaults = existing.get("rules") or [], expected.get("rules") or []
    if rules != defaults:
        missing = uncovered(rules, defaults)
        if missing:
            wanted["rules"] = [*rules, *missing]
    aggregation, default = existing.get("aggregationRule"), expected.get("aggregationRule")
    if default is None:
        if aggregation is not None:
            wanted["aggregationRule"] = None
    else:
        selectors = (aggregation or {}).get("clusterRoleSelectors") or []
        lacking = [selector for selector in default["clusterRoleSelectors"] if selector not in selectors]
        if lacking:
            wanted["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *lacking]}
    return wanted


def missing_of_binding(existing: Obj, expected: Obj) -> Obj:
    wanted = _missing_metadata(existing, expected)
    subjects = existing.get("subjects") or []
    missing = [subject for subject in expected.get("subjects") or () if subject not in subjects]
    if missing:
        wanted["subjects"] = [*subjects, *missing]
    return wanted


def _missing_metadata(existing: Obj, expected: Obj) -> Obj:
    changed = {}
    for field in ("annotations", "labels"):
        present = existing["metadata"].get(field) or {}
        merged = (expected["metadata"].get(field) or {}) | present
        if merged != present:
            changed[field] = merged
    return {"metadata": changed} if changed else {}
