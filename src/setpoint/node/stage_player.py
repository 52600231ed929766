"""Plays stages: one informer and one queue for each kind that has any."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import NotFound
from setpoint.meta.times import format_time
from setpoint.node.stages import Stage, filled
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of, split_key

Obj = dict[str, Any]

_PODS = builtin("pods")
_LEAST_PAUSE = 0.01
_JITTER_STEPS = 1000


class Stages:
    def __init__(self, pods: Sequence[Stage]) -> None:
        self._pods = pods

    def handles_pod(self, pod: Any) -> bool:
        """A Pod that a stage speaks of, unless it is to go and no stage says how."""
        if "deletionTimestamp" in pod["metadata"]:
            return any(stage.matches(pod) for stage in self._pods)
        return any(stage.claims(pod) for stage in self._pods)


def add_stages(manager: Manager, client: Client, stages: Sequence[Stage], recorder: EventRecorder) -> Stages:
    kinds: dict[tuple[str, str], list[Stage]] = {}
    for stage in stages:
        kinds.setdefault((stage.api_version, stage.kind), []).append(stage)
    for kind, own in kinds.items():
        # Not the manager's: a kind that nobody has defined yet must not hold up the rest.
        informer = Informer(client, kind, manager.clock)
        player = _Player(kind, own, informer, client, manager.clock, manager.ids, recorder)
        manager.add(informer)
        manager.add(player.controller)
    return Stages(kinds.get(("v1", "Pod"), []))


class _Player:
    def __init__(
        self,
        kind: tuple[str, str],
        stages: Sequence[Stage],
        informer: Informer,
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
        """By key: the uid of the object, the stage it is in, and when that stage comes to its end."""
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
            return Result(requeue_after=max(planned[2] - now, _LEAST_PAUSE))
        del self._planned[key]
        with suppress(NotFound):
            await self._play(stage, obj)
        return None

    async def _play(self, stage: Stage, obj: Obj) -> None:
        meta, then = obj["metadata"], stage.then
        namespace, name = split_key(key_of(obj))
        now = format_time(self._clock.now())
        if then.get("event"):
            event = filled(then["event"], obj, now)
            say = self._recorder.warning if event.get("type") == "Warning" else self._recorder.normal
            say({"apiVersion": self._kind[0], "kind": self._kind[1], **obj}, event["reason"], event.get("message", ""))
        if then.get("status"):
            change = {"metadata": {"uid": meta["uid"]}, "status": filled(then["status"], obj, now)}
            await self._client.patch(self._kind, name, change, namespace, subresource="status")
        patch = filled(then.get("patch") or {}, obj, now)
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
    """None: they stay as they are."""
    removed, added = change.get("remove") or (), change.get("add") or ()
    wanted = [each for each in current if each not in removed]
    wanted += [each for each in added if each not in wanted]
    return wanted if wanted != current else None
