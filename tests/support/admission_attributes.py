"""Attributes of writes for plugins, and a Reader over objects in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.objects import Obj

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class ObjectReader:
    """A Reader over the objects that a test puts into it."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str, str], Obj] = {}

    def put(self, group: str, plural: str, namespace: str, name: str, **fields: Any) -> Obj:
        meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **fields.pop("metadata", {})}
        if namespace:
            meta["namespace"] = namespace
        obj = {"metadata": meta, **fields}
        self.objects[(group, plural, namespace, name)] = obj
        return obj

    def get(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        return self.objects.get((group, plural, namespace, name))

    def list(self, group: str, plural: str, namespace: str = "") -> Iterable[Obj]:
        return [
            obj
            for (of_group, of_plural, of_namespace, _), obj in sorted(self.objects.items())
            if (of_group, of_plural) == (group, plural) and namespace in ("", of_namespace)
        ]


class ManualClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.on_sleep()


class FixedIds:
    def uid(self) -> str:
        return "uid"

    def suffix(self) -> str:
        return "bcdfg"

    def below(self, limit: int) -> int:
        return 0


def resource(group: str, plural: str) -> Resource:
    return next(found for found in RESOURCES if (found.group, found.plural) == (group, plural))


def write(
    plural: str,
    obj: Obj | None = None,
    old: Obj | None = None,
    *,
    group: str = "",
    operation: str = "",
    subresource: str = "",
    namespace: str = "ns",
    user: UserInfo | None = None,
    name: str = "x",
    dry_run: bool = False,
) -> Attributes:
    found = resource(group, plural)
    if not operation:
        operation = "CREATE" if old is None else "UPDATE" if obj is not None else "DELETE"
    return Attributes(
        operation,
        found,
        subresource,
        namespace if found.namespaced else "",
        name,
        obj,
        old,
        user or UserInfo("alice"),
        NOW,
        dry_run,
    )


def pod(spec: Obj | None = None, container: Obj | None = None, **metadata: Any) -> Obj:
    first = {"name": "c", "image": "img:1", "resources": {}, **(container or {})}
    return {
        "metadata": {"name": "x", "namespace": "ns", **metadata},
        "spec": {"containers": [first], **(spec or {})},
        "status": {},
    }
