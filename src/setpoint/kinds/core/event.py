"""Event (v1): something that happened to an object. Stored in this form; events.k8s.io/v1 is another view of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from setpoint.kinds.cell_texts import since
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, FieldError, invalid, required
from setpoint.meta.names import path_segment, path_segment_prefix, qualified_name
from setpoint.meta.objects import Obj, ObjView

_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}


def _involved(obj: Obj) -> ObjView:
    return obj.get("involvedObject") or {}


def _first_seen(obj: Obj, now: datetime) -> str:
    return since(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _last_seen(obj: Obj, now: datetime) -> str:
    if obj.get("series"):
        return since(obj["series"].get("lastObservedTime"), now)
    return since(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else _first_seen(obj, now)


def _count(obj: Obj, now: datetime) -> int:
    if obj.get("series"):
        return int(obj["series"].get("count", 0))
    return obj.get("count") or 1


def _target(obj: Obj, now: datetime) -> str:
    kind, name = _involved(obj).get("kind", "").lower(), _involved(obj).get("name", "")
    return f"{kind}/{name}" if name else kind


def _source(obj: Obj, now: datetime) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent", "")
    instance = source.get("host") or obj.get("reportingInstance", "")
    return f"{component}, {instance}" if instance else component


def _field(name: str) -> Callable[[Obj, datetime], str]:
    return lambda obj, now: obj.get(name, "")


COLUMNS = (
    Column("Last Seen", _last_seen, description="When it happened last."),
    Column("Type", _field("type"), description="Normal or Warning."),
    Column("Reason", _field("reason"), description="Why, in one word."),
    Column("Object", _target, description="What it happened to."),
    Column(
        "Subobject",
        lambda obj, now: _involved(obj).get("fieldPath", ""),
        priority=1,
        description="Which part of the object.",
    ),
    Column("Source", _source, priority=1, description="Who reported it."),
    Column("Message", lambda obj, now: obj.get("message", "").strip(), description="What happened, for people."),
    Column("First Seen", _first_seen, priority=1, description="When it happened first."),
    Column("Count", _count, priority=1, description="How often it happened."),
    Column(
        "Name",
        lambda obj, now: obj["metadata"].get("name", ""),
        priority=1,
        format="name",
        description="Name of the event.",
    ),
)


class EventStrategy(Strategy):
    qualified_finalizers = False
    columns = COLUMNS
    field_labels = Strategy.field_labels | {
        *(f"involvedObject.{name}" for name in _INVOLVED),
        "reason",
        "reportingComponent",
        "source",
        "type",
    }
    allow_create_on_update = True

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment_prefix(name) if prefix else path_segment(name)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_event(obj, "reportingComponent", errs)

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        fields = {f"involvedObject.{name}": _involved(obj).get(name, "") for name in _INVOLVED}
        reporter = obj.get("reportingComponent", "")
        fields.update(
            {
                "reason": obj.get("reason", ""),
                "reportingComponent": reporter,
                "source": (obj.get("source") or {}).get("component") or reporter,
                "type": obj.get("type", ""),
            }
        )
        return fields


def validate_event(obj: Obj, reporter_field: str, errs: Errors) -> None:
    """Validate an event; `reporter_field` is the request API's name of the reporting controller."""
    namespace, involved = obj["metadata"].get("namespace", ""), _involved(obj).get("namespace", "")
    if not obj.get("eventTime"):
        if namespace not in ((involved,) if involved else ("", "default")):
            errs.append(_mismatch(involved))
        return
    if not involved and namespace not in ("default", "kube-system"):
        errs.append(_mismatch(involved))
    reporter = obj.get("reportingComponent", "")
    if not reporter:
        errs.append(required(reporter_field))
    for text in qualified_name(reporter):
        errs.append(invalid(reporter_field, reporter, text))
    for name, limit in _LIMITS.items():
        value = obj.get(name, "")
        if not value and name != "message":
            errs.append(required(name))
        if len(value.encode()) > limit:
            errs.append(invalid(name, "", f"can have at most {limit} characters"))


def _mismatch(involved: str) -> FieldError:
    return invalid("involvedObject.namespace", involved, "does not match event.namespace")


STRATEGY = EventStrategy()
