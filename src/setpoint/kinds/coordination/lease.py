"""Lease: the holder of a lock, and until when it holds it."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, not_supported
from setpoint.meta.names import qualified_name
from setpoint.meta.objects import Obj

_COORDINATED = ("strategy", "preferredHolder")
"""Fields of coordinated leader election, a disabled feature."""


class LeaseStrategy(Strategy):
    qualified_finalizers = False
    columns = (
        NAME,
        Column("Holder", lambda obj, now: (obj.get("spec") or {}).get("holderIdentity", ""), description="Who has it."),
        AGE,
    )
    allow_create_on_update = True
    allow_unconditional_update = False

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        for name in _COORDINATED:
            obj.get("spec", {}).pop(name, None)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        for name in _COORDINATED:
            if name not in old.get("spec", {}):
                obj.get("spec", {}).pop(name, None)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj.get("spec") or {}
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            errs.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errs.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        strategy = spec.get("strategy")
        if strategy is not None:
            # Upstream repeats the last part of the path.
            path = "spec.strategy.strategy"
            if "/" in strategy:
                errs.extend(invalid(path, strategy, text) for text in qualified_name(strategy))
            elif strategy != "OldestEmulationVersion":
                errs.append(not_supported(path, strategy, ("OldestEmulationVersion",)))
        if spec.get("preferredHolder") and not strategy:
            errs.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))


STRATEGY = LeaseStrategy()
