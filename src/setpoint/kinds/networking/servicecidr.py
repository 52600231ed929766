"""ServiceCIDR: a range from which cluster IPs are allocated."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import _parse_cidr_sloppy, validate_cidr
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy, retain_metadata
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import cidr
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj

_SAME_FAMILY = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


class ServiceCIDRStrategy(Strategy):
    has_status = True

    def default(self, obj: Obj) -> None:
        obj.setdefault("spec", {})

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_cidrs(_cidrs(obj), errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        cidrs, before = _cidrs(obj), _cidrs(old)
        if len(cidrs) == len(before):
            for i, (text, known) in enumerate(zip(cidrs, before)):
                if text != known:
                    errs.append(invalid(f"spec.cidrs[{i}]", text, IMMUTABLE))
        elif len(before) == 1 and len(cidrs) == 2:
            # The only change that is allowed: adding a second family.
            if cidrs[0] != before[0]:
                errs.append(invalid("spec.cidrs[0]", cidrs[0], IMMUTABLE))
            _validate_cidrs(cidrs, errs)
        else:
            errs.append(invalid("spec.cidrs", cidrs or None, IMMUTABLE))

    columns = (
        NAME,
        Column("CIDRs", lambda obj, now: ",".join(_cidrs(obj)), description="The ranges, one per family."),
        AGE,
    )


class ServiceCIDRStatusStrategy(StatusStrategy):
    qualified_finalizers = False

    @property
    def resets(self) -> tuple[str, ...]:
        return ("metadata", "spec")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        retain_metadata(obj, old)


def _cidrs(obj: Obj) -> list[str]:
    return (obj.get("spec") or {}).get("cidrs") or []


def _validate_cidrs(cidrs: list[str], errs: Errors) -> None:
    if not cidrs:
        errs.append(required("spec.cidrs", "at least one CIDR required"))
        return
    if len(cidrs) > 2:
        shown: Obj = {"CIDRs": cidrs}
        errs.append(invalid("spec.cidrs", shown, "may only hold up to 2 values"))
        return
    for i, text in enumerate(cidrs):
        found: Errors = []
        validate_cidr(text, f"spec.cidrs[{i}]", found)
        errs.extend(found or [invalid(f"spec.cidrs[{i}]", text, problem) for problem in cidr(text)])
    if len(cidrs) == 2:
        families = [parsed[0].version for parsed in map(_parse_cidr_sloppy, cidrs) if parsed is not None]
        if len(families) == 2 and families[0] == families[1]:
            errs.append(invalid("spec.cidrs", cidrs, _SAME_FAMILY))


STRATEGY = ServiceCIDRStrategy()
STRATEGY.subresources = {"status": ServiceCIDRStatusStrategy(STRATEGY)}
