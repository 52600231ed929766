"""Run the hooks of a kind's strategy in the order of the registry, without a registry."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.kinds.catalog import RESOURCES
from setpoint.kinds.strategy import Context
from setpoint.meta.decode import decode
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj

NOW = datetime(2030, 1, 1, tzinfo=UTC)
UID = "11111111-1111-1111-1111-111111111111"


class Lifecycle:
    """The life cycle of objects of one kind. `create` and `update` return the object, its errors, and the warnings."""

    def __init__(self, api_version: str, kind: str) -> None:
        group, _, version = api_version.rpartition("/")
        self.resource = next(r for r in RESOURCES if (r.group, r.version, r.kind) == (group, version, kind))
        self.strategy = self.resource.strategy
        self.ctx = Context(now=NOW)

    def decoded(self, body: Obj, name: str = "x") -> Obj:
        """Return the object as the registry gets it, decoded and defaulted."""
        meta = {"name": name, **body.get("metadata", {})}
        obj: Obj = decode(self.resource.type, {**copy.deepcopy(body), "metadata": meta})
        self.strategy.default(obj)
        return obj

    def created(self, body: Obj) -> Obj:
        """Return the object as it is stored; it must be valid."""
        obj, errors, _ = self.create(body)
        assert errors == []
        return obj

    def errors(self, body: Obj) -> list[str]:
        return self.create(body)[1]

    def warnings(self, body: Obj) -> list[str]:
        return self.create(body)[2]

    def put(self, old: Obj, body: Obj, sub: str = "") -> tuple[Obj, list[str]]:
        """Replace the object by `body`; omitted fields are removed unless the hooks retain them."""
        strategy = self.strategy.subresources[sub] if sub else self.strategy
        before = copy.deepcopy(old)
        obj = self.decoded(body)
        strategy.prepare_for_update(obj, old, self.ctx)
        errs: Errors = []
        strategy.validate_update(obj, old, errs, self.ctx)
        assert old == before, "the stored object was modified"
        return obj, [e.message() for e in errs]

    def create(self, body: Obj, name: str = "x") -> tuple[Obj, list[str], list[str]]:
        obj = self.decoded(body, name)
        obj["metadata"].update(uid=UID, creationTimestamp="2029-12-31T00:00:00Z")
        if self.strategy.has_generation:
            obj["metadata"]["generation"] = 1
        self.strategy.prepare_for_create(obj, self.ctx)
        errs: Errors = []
        self.strategy.validate(obj, errs, self.ctx)
        return obj, [e.message() for e in errs], [] if errs else self.strategy.warnings_on_create(obj, self.ctx)

    def update(self, old: Obj, sub: str = "", **changes: Any) -> tuple[Obj, list[str], list[str]]:
        """Update the object: `changes` replace top-level fields, `spec` and `status` merge one level deep, None removes."""
        strategy = self.strategy.subresources[sub] if sub else self.strategy
        before = copy.deepcopy(old)
        new = copy.deepcopy(old)
        for field, value in changes.items():
            if field in ("spec", "status", "metadata"):
                merged = {**new.get(field, {}), **value}
                new[field] = {name: one for name, one in merged.items() if one is not None}
            elif value is None:
                new.pop(field, None)
            else:
                new[field] = value
        obj = decode(self.resource.type, new)
        strategy.default(obj)
        strategy.prepare_for_update(obj, old, self.ctx)
        if self.strategy.has_generation and any(obj.get(f) != old.get(f) for f in self.strategy.spec_fields):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        errs: Errors = []
        strategy.validate_update(obj, old, errs, self.ctx)
        warnings = [] if errs else strategy.warnings_on_update(obj, old, self.ctx)
        assert old == before, "the stored object was modified"
        return obj, [e.message() for e in errs], warnings

    def cells(self, obj: Obj) -> dict[str, Any]:
        return {column.name: column.cell(obj, NOW) for column in self.strategy.columns}


@pytest.fixture
def lifecycle() -> Callable[[str, str], Lifecycle]:
    return Lifecycle
