"""`rollout pause`, `resume` and `restart`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from setpoint.cli.command import Command, Run
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.rollout.status import FLAGS, report_nothing_found, workloads
from setpoint.cli.writing import OUTPUT, Results, field_manager
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
Patch = Callable[[Target, datetime], Obj]
"""Returns the change. Raises Failed with the reason if it is not possible."""


def _change(patch: Patch, done: str) -> Run:
    async def run(invocation: Invocation) -> None:
        errors: list[Exception] = []
        found = await workloads(invocation, errors)
        results = Results(invocation)
        if not found and not errors:
            report_nothing_found(invocation)
        for target in found:
            try:
                wanted = patch(target, invocation.io.clock.now())
            except Failed as error:
                errors.append(Failed(f"error: {target.resource} {quote(target.name)} {error}"))
                continue
            if not wanted:
                errors.append(
                    Failed(
                        f"failed to create patch for {target.name}: if restart has already been triggered within the "
                        "past second, please wait before attempting to trigger another"
                    )
                )
                continue
            try:
                obj = await invocation.client.patch(
                    target.resource,
                    target.name,
                    wanted,
                    target.namespace,
                    kind="strategic",
                    field_manager=invocation.flags.field_manager,
                )
            except ApiError as error:
                errors.append(Failed(f"failed to patch: {error.message}"))
                continue
            results.add(obj, done, typed=True)
        raise_all(errors)

    return run


def _pause(target: Target, _: datetime) -> Obj:
    if _kind(target) != "Deployment":
        raise Failed("pausing is not supported")
    if _spec(target).get("paused"):
        raise Failed("is already paused")
    return {"spec": {"paused": True}}


def _resume(target: Target, _: datetime) -> Obj:
    if _kind(target) != "Deployment":
        raise Failed("resuming is not supported")
    if not _spec(target).get("paused"):
        raise Failed("is not paused")
    return {"spec": {"paused": None}}


def _restart(target: Target, now: datetime) -> Obj:
    if _kind(target) not in ("Deployment", "DaemonSet", "StatefulSet"):
        raise Failed("restarting is not supported")
    if _spec(target).get("paused"):
        raise Failed("can't restart paused deployment (run rollout resume first)")
    when = now.astimezone().isoformat(timespec="seconds").replace("+00:00", "Z")
    template = _spec(target).get("template") or {}
    if ((template.get("metadata") or {}).get("annotations") or {}).get(_RESTARTED_AT) == when:
        return {}
    return {"spec": {"template": {"metadata": {"annotations": {_RESTARTED_AT: when}}}}}


def _kind(target: Target) -> str:
    return target.resource.kind if target.resource.group == "apps" else ""


def _spec(target: Target) -> Obj:
    return (target.obj or {}).get("spec") or {}


_FLAGS = (*OUTPUT, *FLAGS, *field_manager("kubectl-rollout"))
PAUSE = Command(
    "Mark the provided resource as paused",
    _change(_pause, "paused"),
    _FLAGS,
    usage="RESOURCE",
    about="What is paused is not reconciled: changes of a deployment wait until it is resumed.",
    examples="""
    setpoint rollout pause deployment/web
    """,
)
RESUME = Command(
    "Resume a paused resource",
    _change(_resume, "resumed"),
    _FLAGS,
    usage="RESOURCE",
    examples="""
    setpoint rollout resume deployment/web
    """,
)
RESTART = Command(
    "Restart a resource",
    _change(_restart, "restarted"),
    _FLAGS,
    usage="RESOURCE",
    about="All Pods are replaced, as by any other change of the template.",
    examples="""
    setpoint rollout restart deployment/web

    # All that have a label
    setpoint rollout restart deployment -l app=web
    """,
)
