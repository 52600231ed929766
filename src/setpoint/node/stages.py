"""Behaviour as data: when an object looks like this, then, after a while, that happens to it. Pure.

    - name: backup-finishes
      apiVersion: example.com/v1
      kind: Backup
      when:
        labels: {tier: test}                                   # all of them
        annotations: {}                                        # likewise
        fields:
        - {path: .status.phase, operator: In, values: [Running]}
        - {path: .metadata.deletionTimestamp, operator: DoesNotExist}
      after: {seconds: 3, jitterSeconds: 2}
      then:
        status: {phase: Done, finishedAt: "{now}", log: "of {.metadata.name}"}   # merged into the status
        patch: {metadata: {labels: {done: "yes"}}}             # merged into the object
        event: {type: Normal, reason: Finished, message: "{.metadata.name} is done"}
        finalizers: {add: [], remove: [example.com/backup]}
        delete: false

Stages are tried in order and the first that matches is the one. `status` may also be reached by `fields`. A Pod that
the labels, annotations and fields outside its status of any stage match is left to the stages altogether.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

Obj = Mapping[str, Any]

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_PLACE = re.compile(r"\{(now|\.[A-Za-z0-9_./\[\]'-]+)\}")
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]|\['([^']+)'\]")


class StageProblem(ValueError):
    """The stage makes no sense; the message says why."""


class FieldTest(NamedTuple):
    path: tuple[str | int, ...]
    operator: str
    values: tuple[str, ...]

    def holds(self, obj: Obj) -> bool:
        found = look_up(obj, self.path)
        match self.operator:
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
        return (_text(found) in self.values) == (self.operator == "In")


class Stage(NamedTuple):
    name: str
    api_version: str
    kind: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    fields: tuple[FieldTest, ...]
    seconds: float
    jitter: float
    then: Mapping[str, Any]

    def matches(self, obj: Obj) -> bool:
        return self._described(obj) and all(test.holds(obj) for test in self.fields)

    def claims(self, obj: Obj) -> bool:
        """Whether it speaks of this object at all, whatever its state is."""
        lasting = [test for test in self.fields if test.path[0] not in ("status", "metadata")]
        return self._described(obj) and all(test.holds(obj) for test in lasting)

    def _described(self, obj: Obj) -> bool:
        meta = obj["metadata"]
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            annotations.get(key) == value for key, value in self.annotations.items()
        )


def look_up(obj: Any, path: tuple[str | int, ...]) -> Any:
    """None: not there."""
    for step in path:
        if isinstance(step, int):
            obj = obj[step] if isinstance(obj, list) and step < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, Mapping) else None
        if obj is None:
            return None
    return obj


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def filled(template: Any, obj: Obj, now: str) -> Any:
    """With `{now}` and `{.path}` replaced in all its texts."""
    if isinstance(template, str):
        return _PLACE.sub(
            lambda found: now if found[1] == "now" else _text(look_up(obj, parse_path(found[1]))), template
        )
    if isinstance(template, Mapping):
        return {key: filled(value, obj, now) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, obj, now) for value in template]
    return template


def parse_path(text: str) -> tuple[str | int, ...]:
    """Raises StageProblem."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise StageProblem(f"path {text!r}: must look like .status.conditions[0].type")
        steps.append(int(match[2]) if match[2] else match[1] or match[3])
        at = match.end()
    if not steps:
        raise StageProblem("path: is required")
    return tuple(steps)


def stage_of(found: Any) -> Stage:
    """Raises StageProblem."""
    table = _table(found, "a stage", ("name", "apiVersion", "kind", "when", "after", "then"))
    for key in ("name", "kind", "then"):
        if not table.get(key):
            raise StageProblem(f"{key}: is required")
    when = _table(table.get("when") or {}, "when", ("labels", "annotations", "fields"))
    after = _table(table.get("after") or {}, "after", ("seconds", "jitterSeconds"))
    then = _table(table["then"], "then", ("status", "patch", "event", "finalizers", "delete"))
    if then.get("event"):
        event = _table(then["event"], "then.event", ("type", "reason", "message"))
        if not event.get("reason"):
            raise StageProblem("then.event.reason: is required")
    if then.get("finalizers"):
        _table(then["finalizers"], "then.finalizers", ("add", "remove"))
    return Stage(
        str(table["name"]), str(table.get("apiVersion", "v1")), str(table["kind"]),
        _table(when.get("labels") or {}, "when.labels"), _table(when.get("annotations") or {}, "when.annotations"),
        tuple(_test(each, f"when.fields[{number}]") for number, each in enumerate(when.get("fields") or ())),
        _number(after, "seconds"), _number(after, "jitterSeconds"), then,
    )  # fmt: skip


def _table(found: Any, where: str, known: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise StageProblem(f"{where}: must be a mapping")
    for key in found:
        if known and key not in known:
            raise StageProblem(f"{where}: {key!r} is unknown; there are {', '.join(known)}")
    return found


def _test(found: Any, where: str) -> FieldTest:
    table = _table(found, where, ("path", "operator", "values"))
    operator = table.get("operator", "In")
    if operator not in _OPERATORS:
        raise StageProblem(f"{where}.operator: {operator!r} is not one of {', '.join(_OPERATORS)}")
    values = table.get("values") or ()
    if operator in ("In", "NotIn") and not values:
        raise StageProblem(f"{where}.values: are required for {operator}")
    return FieldTest(parse_path(str(table.get("path", ""))), operator, tuple(_text(each) for each in values))


def _number(table: Mapping[str, Any], key: str) -> float:
    found = table.get(key, 0)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found < 0:
        raise StageProblem(f"after.{key}: must be a number of seconds, not {found!r}")
    return float(found)
