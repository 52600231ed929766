"""Event (events.k8s.io/v1): the same stored events as v1, under newer names and stricter rules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.kinds.core.event import COLUMNS, validate_event
from setpoint.kinds.core.event import STRATEGY as CORE
from setpoint.kinds.internal_form import internal
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj

_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_FROM_CORE = {core: name for name, core in _TO_CORE.items()}
_EMPTY_IN_CORE: Obj = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_EMPTY_HERE: Obj = {
    "eventTime": None,
    "regarding": {},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
_CORE_ORDER = (
    "metadata",
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "series",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
_ORDER = (
    "metadata",
    "eventTime",
    "series",
    "reportingController",
    "reportingInstance",
    "action",
    "reason",
    "regarding",
    "related",
    "note",
    "type",
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
)


def to_core(obj: Obj) -> Obj:
    """Return the v1 Event that this events.k8s.io/v1 Event is stored as, without kind and apiVersion. Parts are
    shared."""
    core = {**_EMPTY_IN_CORE, **{_TO_CORE.get(name, name): value for name, value in obj.items()}}
    return {name: core[name] for name in _CORE_ORDER if name in core}


def from_core(obj: Obj) -> Obj:
    """Return a stored v1 Event as events.k8s.io/v1 shows it, without kind and apiVersion. Parts are shared."""
    event = {**_EMPTY_HERE, **{_FROM_CORE.get(name, name): value for name, value in obj.items()}}
    for name in ("reportingController", "reportingInstance"):
        if not event.get(name):
            event.pop(name, None)  # Always written in v1; omitted here if empty.
    return {name: event[name] for name in _ORDER if name in event}


def _as_core(column: Column) -> Column:
    def cell(obj: Obj, now: datetime) -> Any:
        return column.cell(to_core(obj), now)

    return Column(column.name, cell, column.type, column.format, column.description, column.priority)


def _own_label(core_label: str) -> str:
    return _FROM_CORE.get(core_label, core_label).replace("involvedObject.", "regarding.")


class EventStrategy(Strategy):
    columns = tuple(map(_as_core, COLUMNS))
    field_labels = frozenset(map(_own_label, CORE.field_labels - {"source"}))
    allow_create_on_update = True

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        core = to_core(obj)
        validate_event(core, "reportingController", errs)
        _validate_series(obj, errs)
        if not obj.get("eventTime"):
            errs.append(required("eventTime"))
        kind = obj.get("type", "")
        if kind not in ("Normal", "Warning"):
            errs.append(invalid("type", "", f"has invalid value: {kind}"))
        for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
            if core.get(name):
                errs.append(invalid(name, "", "needs to be unset"))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        core, before = to_core(obj), to_core(old)
        validate_event(core, "reportingController", errs)
        if core.get("series") != before.get("series"):
            _validate_series(obj, errs)
        for name in (
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ):
            if core.get(name) != before.get(name):
                path = "reportingController" if name == "reportingComponent" else name
                errs.append(invalid(path, _shown(name, core.get(name)), IMMUTABLE))

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        fields = CORE.selectable_fields(to_core(obj))
        del fields["source"]
        return {_own_label(label): value for label, value in fields.items()}


def _validate_series(obj: Obj, errs: Errors) -> None:
    series = obj.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        errs.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errs.append(required("series.lastObservedTime"))


def _shown(name: str, value: Any) -> Any:
    """Return upstream's internal struct as messages show it: all fields, with Go's names."""
    if name in ("involvedObject", "related") and value is not None:
        return internal("ObjectReference", value)
    if name == "source":
        return {"Component": (value or {}).get("component", ""), "Host": (value or {}).get("host", "")}
    if name == "count":
        return value or 0
    return value if value is not None or name in ("firstTimestamp", "lastTimestamp", "eventTime", "related") else ""


STRATEGY = EventStrategy()
