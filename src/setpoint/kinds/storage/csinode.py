"""CSINode: the volume drivers on a node."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.numbers import non_negative
from setpoint.kinds.shared_names import validate_driver_name
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, required
from setpoint.meta.names import qualified_name
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj


class CSINodeStrategy(Strategy):
    returns_deleted = True
    allow_unconditional_update = False
    has_status = True

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        seen: set[str] = set()
        for i, driver in enumerate(_drivers(obj)):
            _validate_driver(driver, seen, f"spec.drivers[{i}]", errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate(obj, errs, ctx)
        for before in _drivers(old):
            for driver in _drivers(obj):
                if driver.get("name", "") == before.get("name", "") and _fixed(driver) != _fixed(before):
                    errs.append(invalid("spec.drivers", _fixed(driver), IMMUTABLE))

    columns = (
        NAME,
        Column("Drivers", lambda obj, now: len(_drivers(obj)), type="integer", description="How many there are."),
        AGE,
    )


def _drivers(obj: Obj) -> list[Obj]:
    return (obj.get("spec") or {}).get("drivers") or []


def _fixed(driver: Obj) -> Obj:
    """Return all of a driver but its capacity, which may change."""
    return {
        "Name": driver.get("name", ""),
        "NodeID": driver.get("nodeID", ""),
        "TopologyKeys": driver.get("topologyKeys") or None,
        "Allocatable": None,
    }


def _validate_driver(driver: Obj, seen: set[str], path: str, errs: Errors) -> None:
    name, node_id = driver.get("name", ""), driver.get("nodeID", "")
    validate_driver_name(name, f"{path}.name", errs)
    if not node_id:
        errs.append(required(f"{path}.nodeID"))
    if len(node_id.encode()) > 256:
        errs.append(invalid(f"{path}.nodeID", node_id, "must be 256 characters or less"))
    count = (driver.get("allocatable") or {}).get("count")
    if count is not None:
        non_negative(count, f"{path}.allocatable.count", errs)
    if name in seen:
        errs.append(duplicate(f"{path}.name", name))
    seen.add(name)
    keys: set[str] = set()
    for key in driver.get("topologyKeys") or ():
        if not key:
            errs.append(required(path, key))
        if key in keys:
            errs.append(duplicate(path, key))
        keys.add(key)
        errs.extend(invalid(path, key, text) for text in qualified_name(key))


class CSINodeStatusStrategy(BareStatusStrategy):
    """The status of a CSINode, whose fields are behind a feature gate that is off by default."""

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        if not (old.get("status") or {}).get("storageHealth"):
            (obj.get("status") or {}).pop("storageHealth", None)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        pass


STRATEGY = CSINodeStrategy()
STRATEGY.subresources = {"status": CSINodeStatusStrategy(STRATEGY)}
