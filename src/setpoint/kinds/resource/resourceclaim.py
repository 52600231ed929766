"""ResourceClaim: a request for devices, and in its status the devices it got and who uses them."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.resource.allocation import device_key, validate_claim_status
from setpoint.kinds.resource.claims import default_claim, drop_disabled, validate_claim
from setpoint.kinds.resource.tolerations import default_tolerations
from setpoint.kinds.status_metadata import BareStatusStrategy
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objectmeta import IMMUTABLE


def _state(obj: Obj, now: datetime) -> str:
    status, deleted = obj.get("status") or {}, bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return ",".join(states)


class ResourceClaimStrategy(Strategy):
    returns_deleted = True
    has_status = True
    columns = (NAME, Column("State", _state, description="Pending, allocated, reserved, deleted."), AGE)

    def __init__(self) -> None:
        self.subresources = {"status": ResourceClaimStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        default_claim(obj["spec"])
        allocation = (obj.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            default_tolerations(result)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled(obj["spec"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled(obj["spec"])

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        late: Errors = []
        validate_claim(obj["spec"], "spec", errs, late)
        errs.extend(late)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if obj["spec"] != old["spec"]:
            errs.append(invalid("spec", None, IMMUTABLE))


class ResourceClaimStatusStrategy(BareStatusStrategy):
    """The status of a claim. The server checks whether the caller may bind or act for a driver."""

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        status, old_status = obj.setdefault("status", {}), old.get("status") or {}
        allocation = status.get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        for result in results:
            result.pop("skipNodeOperations", None)  # not on by default
        # The status of a device is removed when the device is deallocated.
        old_results = ((old_status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        gone = {device_key(result) for result in old_results} - {device_key(result) for result in results}
        devices = [device for device in status.get("devices") or () if device_key(device) not in gone]
        if devices:
            status["devices"] = devices
        else:
            status.pop("devices", None)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_claim_status(obj, old, errs)


STRATEGY = ResourceClaimStrategy()
