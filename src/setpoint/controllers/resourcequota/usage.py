"""Adds up what the objects of a namespace use of a quota."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from setpoint.kinds.core.quota_usage import Meter, scopes_of
from setpoint.meta.quantity import DECIMAL, Quantity, compare, of_value, parse

Obj = Mapping[str, Any]
Amounts = dict[str, str]


def measured_names(meter: Meter, hard: Iterable[str]) -> list[str]:
    return sorted(name for name in hard if meter.measures(name))


def added_up(quota: Obj, meter: Meter, objects: Collection[Obj], names: Sequence[str], now: datetime) -> Amounts:
    """Return the usage of the quota by these objects under each of the names; zero where they use nothing."""
    scopes = scopes_of(quota)
    if type(meter) is Meter and not scopes:
        # Only the number of objects matters.
        return dict.fromkeys(names, str(len(objects)))
    totals: dict[str, Quantity] = dict.fromkeys(names, of_value(0, DECIMAL))
    for obj in objects:
        if all(meter.in_scope(scope, obj) for scope in scopes):
            for name, amount in meter.usage(obj, now).items():
                if name in totals:
                    totals[name] = totals[name].plus(parse(amount))
    return {name: total.text for name, total in totals.items()}


def same_amounts(one: Obj | None, other: Obj | None) -> bool:
    """Return whether the amounts are equal, whatever their notation."""
    if one is None or other is None or one.keys() != other.keys():
        return False
    return all(compare(amount, other[name]) == 0 for name, amount in one.items())


def is_relevant(meter: Meter, quota: Obj, old: Obj, new: Obj, now: datetime) -> bool:
    """Return whether a change of an object can reduce the usage of the quota."""
    if meter.usage(old, now) != meter.usage(new, now):
        return True
    return any(meter.in_scope(scope, old) != meter.in_scope(scope, new) for scope in scopes_of(quota))
