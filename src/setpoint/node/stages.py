"""Behaviour as data: an object that matches a stage is changed as the stage specifies, after a delay.

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

Stages are tried in order, and the first that matches applies. `fields` may also refer to the status. The agent leaves a
Pod to the stages altogether if the labels, annotations and fields outside the status of any stage match it.

There is one informer and one controller for each kind that has stages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from setpoint.client import Client
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of, split_key

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_PLACEHOLDER = re.compile(r"\{(now|\.[A-Za-z0-9_./\[\]'-]+)\}")
_PATH_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]|\['([^']+)'\]")
_MIN_DELAY = 0.01
_JITTER_STEPS = 1000


class StageError(ValueError):
    """The stage is invalid; the message contains the reason."""


class FieldRequirement(NamedTuple):
    """A condition on the value at a path of an object."""

    path: tuple[str | int, ...]
    operator: str
    values: tuple[str, ...]

    def matches(self, obj: ObjView) -> bool:
        found = get_path(obj, self.path)
        match self.operator:
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
        return (_to_text(found) in self.values) == (self.operator == "In")


class Stage(NamedTuple):
    """A stage: the objects to which it applies, its delay, and its effects."""

    name: str
    api_version: str
    kind: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    fields: tuple[FieldRequirement, ...]
    seconds: float
    jitter: float
    then: Mapping[str, Any]

    def matches(self, obj: ObjView) -> bool:
        return self._metadata_matches(obj) and all(test.matches(obj) for test in self.fields)

    def selects(self, obj: ObjView) -> bool:
        """Return whether the stage applies to the object in some state of it."""
        stateless = [test for test in self.fields if test.path[0] not in ("status", "metadata")]
        return self._metadata_matches(obj) and all(test.matches(obj) for test in stateless)

    def _metadata_matches(self, obj: ObjView) -> bool:
        meta = obj["metadata"]
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            annotations.get(key) == value for key, value in self.annotations.items()
        )


def get_path(obj: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at a path, or None if it does not exist."""
    for step in path:
        if isinstance(step, int):
            obj = obj[step] if isinstance(obj, list) and step < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, Mapping) else None
        if obj is None:
            return None
    return obj


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def render(template: Any, obj: ObjView, now: str) -> Any:
    """Return the template with `{now}` and `{.path}` replaced in all strings."""
    if isinstance(template, str):
        return _PLACEHOLDER.sub(
            lambda found: now if found[1] == "now" else _to_text(get_path(obj, parse_path(found[1]))), template
        )
    if isinstance(template, Mapping):
        return {key: render(value, obj, now) for key, value in template.items()}
    if isinstance(template, list):
        return [render(value, obj, now) for value in template]
    return template


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse a path such as `.status.conditions[0].type`. Raise StageError."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _PATH_STEP.match(text, at)
        if match is None:
            raise StageError(f"path {text!r}: must look like .status.conditions[0].type")
        steps.append(int(match[2]) if match[2] else match[1] or match[3])
        at = match.end()
    if not steps:
        raise StageError("path: is required")
    return tuple(steps)


def parse_stage(found: Any) -> Stage:
    """Parse a stage. Raise StageError."""
    table = _mapping(found, "a stage", ("name", "apiVersion", "kind", "when", "after", "then"))
    for key in ("name", "kind", "then"):
        if not table.get(key):
            raise StageError(f"{key}: is required")
    when = _mapping(table.get("when") or {}, "when", ("labels", "annotations", "fields"))
    after = _mapping(table.get("after") or {}, "after", ("seconds", "jitterSeconds"))
    then = _mapping(table["then"], "then", ("status", "patch", "event", "finalizers", "delete"))
    if then.get("event"):
        event = _mapping(then["event"], "then.event", ("type", "reason", "message"))
        if not event.get("reason"):
            raise StageError("then.event.reason: is required")
    if then.get("finalizers"):
        _mapping(then["finalizers"], "then.finalizers", ("add", "remove"))
    return Stage(
        str(table["name"]),
        str(table.get("apiVersion", "v1")),
        str(table["kind"]),
        _mapping(when.get("labels") or {}, "when.labels"),
        _mapping(when.get("annotations") or {}, "when.annotations"),
        tuple(
            _field_requirement(each, f"when.fields[{number}]") for number, each in enumerate(when.get("fields") or ())
        ),
        _seconds(after, "seconds"),
        _seconds(after, "jitterSeconds"),
        then,
    )


def _mapping(found: Any, where: str, known: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise StageError(f"{where}: must be a mapping")
    for key in found:
        if known and key not in known:
            raise StageError(f"{where}: {key!r} is not a known field; use one of {', '.join(known)}")
    return found


def _field_requirement(found: Any, where: str) -> FieldRequirement:
    table = _mapping(found, where, ("path", "operator", "values"))
    operator = table.get("operator", "In")
    if operator not in _OPERATORS:
        raise StageError(f"{where}.operator: {operator!r} is not one of {', '.join(_OPERATORS)}")
    values = table.get("values") or ()
    if operator in ("In", "NotIn") and not values:
        raise StageError(f"{where}.values: are required for {operator}")
    return FieldRequirement(parse_path(str(table.get("path", ""))), operator, tuple(_to_text(each) for each in values))


def _seconds(table: Mapping[str, Any], key: str) -> float:
    found = table.get(key, 0)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found < 0:
        raise StageError(f"after.{key}: must be a number of seconds, not {found!r}")
    return float(found)


class PodStages:
    """The stages of Pods."""

    def __init__(self, pods: Sequence[Stage]) -> None:
        self._pods = pods

    def handles_pod(self, pod: Any) -> bool:
        """Return whether stages determine the Pod's status. A Pod that is being deleted is left to the agent unless a
        stage matches it."""
        if "deletionTimestamp" in pod["metadata"]:
            return any(stage.matches(pod) for stage in self._pods)
        return any(stage.selects(pod) for stage in self._pods)


def add_stages(manager: Manager, client: Client, stages: Sequence[Stage], recorder: EventRecorder) -> PodStages:
    kinds: dict[tuple[str, str], list[Stage]] = {}
    for stage in stages:
        kinds.setdefault((stage.api_version, stage.kind), []).append(stage)
    for kind, own in kinds.items():
        # Not an informer of the manager: a kind that is not defined yet must not block the start of the others.
        informer = Informer[Obj](client, kind, manager.clock)
        stage_controller = _StageController(kind, own, informer, client, manager.clock, manager.ids, recorder)
        manager.add(informer)
        manager.add(stage_controller.controller)
    return PodStages(kinds.get(("v1", "Pod"), []))


class _StageController:
    """Applies the stages of one kind."""

    def __init__(
        self,
        kind: tuple[str, str],
        stages: Sequence[Stage],
        informer: Informer[Obj],
        client: Client,
        clock: Clock,
        ids: Ids,
        recorder: EventRecorder,
    ) -> None:
        self._kind = kind
        self._stages = stages
        self._informer = informer
        self._client = client
        self._clock = clock
        self._ids = ids
        self._recorder = recorder
        self._planned: dict[str, tuple[str, str, float]] = {}
        """The uid of the object, its stage, and when the stage's delay ends, by key."""
        self.controller = Controller(f"stages-{kind[1].lower()}", self._sync, clock, workers=4)
        informer.add_handler(self._changed)

    def _changed(self, old: Obj | None, new: Obj | None) -> None:
        key = key_of(new or old or {})
        if new is None:
            self._planned.pop(key, None)
        else:
            self.controller.enqueue(key)

    async def _sync(self, key: str) -> Result | None:
        obj = self._informer.get(key)
        stage = next((each for each in self._stages if each.matches(obj)), None) if obj is not None else None
        if obj is None or stage is None:
            self._planned.pop(key, None)
            return None
        now, uid = self._clock.monotonic(), obj["metadata"]["uid"]
        planned = self._planned.get(key)
        if planned is None or planned[:2] != (uid, stage.name):
            chance = self._ids.below(_JITTER_STEPS) / _JITTER_STEPS if stage.jitter else 0.0
            planned = self._planned[key] = (uid, stage.name, now + stage.seconds + stage.jitter * chance)
        if now < planned[2]:
            return Result(requeue_after=max(planned[2] - now, _MIN_DELAY))
        del self._planned[key]
        with suppress(NotFound):
            await self._apply(stage, obj)
        return None

    async def _apply(self, stage: Stage, obj: Obj) -> None:
        meta, then = obj["metadata"], stage.then
        namespace, name = split_key(key_of(obj))
        now = format_time(self._clock.now())
        if then.get("event"):
            event = render(then["event"], obj, now)
            record = self._recorder.warning if event.get("type") == "Warning" else self._recorder.normal
            record(
                {"apiVersion": self._kind[0], "kind": self._kind[1], **obj}, event["reason"], event.get("message", "")
            )
        if then.get("status"):
            change = {"metadata": {"uid": meta["uid"]}, "status": render(then["status"], obj, now)}
            await self._client.patch(self._kind, name, change, namespace, subresource="status")
        patch = render(then.get("patch") or {}, obj, now)
        finalizers = _finalizers(meta.get("finalizers") or [], then.get("finalizers") or {})
        if finalizers is not None:
            version = {} if then.get("status") else {"resourceVersion": meta["resourceVersion"]}
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "finalizers": finalizers, **version}}
        if patch:
            await self._client.patch(self._kind, name, patch, namespace)
        if then.get("delete"):
            grace = 0 if self._kind == ("v1", "Pod") else None
            await self._client.delete(self._kind, name, namespace, grace_period=grace, uid=meta["uid"])


def _finalizers(current: list[str], change: dict[str, Any]) -> list[str] | None:
    """Return the new finalizers, or None if they do not change."""
    removed, added = change.get("remove") or (), change.get("add") or ()
    wanted = [each for each in current if each not in removed]
    wanted += [each for each in added if each not in wanted]
    return wanted if wanted != current else None
