"""`rollout status`: report what a rollout waits for, until it is complete."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import Flag, duration, number, switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, SELECTORS, Target, choose, fetch
from setpoint.cli.waiting import FOREVER, TimedOut, follow, within
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

FLAGS: tuple[Flag, ...] = (*FILES, *SELECTORS[:1])


async def workloads(invocation: Invocation, errors: list[Exception]) -> list[Target]:
    """Return the current workloads of the server. Failures are appended to `errors`."""
    if not (invocation.args or invocation.flags.filename or invocation.flags.kustomize):
        raise Failed("required resource not specified")
    return await fetch(invocation, await choose(invocation, lists=True), errors)


def report_nothing_found(invocation: Invocation) -> None:
    invocation.print_err(f"No resources found in {invocation.namespace} namespace.")


def group_kind(target: Target) -> str:
    """Return a group and kind such as `Deployment.apps`."""
    kind, group = target.resource.kind, target.resource.group
    return f"{kind}.{group}" if group else kind


REVISION = "deployment.kubernetes.io/revision"


async def run(invocation: Invocation) -> None:
    if invocation.flags.revision < 0:
        raise Failed(f"revision must be a positive integer: {invocation.flags.revision}")
    errors: list[Exception] = []
    found = await workloads(invocation, errors)
    for target in found:
        try:
            await _report(invocation, target)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)
    if not found:
        report_nothing_found(invocation)


async def _report(invocation: Invocation, target: Target) -> None:
    progress = _PROGRESS.get((target.resource.group, target.resource.kind))
    if progress is None:
        raise Failed(f"no status viewer has been implemented for {group_kind(target)}")

    def report(obj: Obj | None) -> bool:
        if obj is None:
            raise Failed("object has been deleted")
        line, through = progress(obj, invocation.flags.revision)
        invocation.print(line)
        invocation.flush()
        return through or not invocation.flags.watch

    try:
        await within(invocation.io, invocation.flags.timeout or FOREVER, follow(invocation, target, report))
    except TimedOut as error:
        raise Failed(str(error)) from None


def deployment_progress(obj: Obj, revision: int) -> tuple[str, bool]:
    """Return a message, and whether the rollout is complete. Raise Failed if it cannot complete."""
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    name = quote(meta["name"])
    if revision > 0:
        current = (meta.get("annotations") or {}).get(REVISION, "0")
        if str(revision) != current:
            raise Failed(f"desired revision ({revision}) is different from the running revision ({current})")
    if meta.get("generation", 0) > status.get("observedGeneration", 0):
        return "Waiting for deployment spec update to be observed...", False
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            raise Failed(f"deployment {name} exceeded its progress deadline")
    wanted, updated = spec.get("replicas"), status.get("updatedReplicas", 0)
    there, available = status.get("replicas", 0), status.get("availableReplicas", 0)
    waiting = f"Waiting for deployment {name} rollout to finish: "
    if wanted is not None and updated < wanted:
        return f"{waiting}{updated} out of {wanted} new replicas have been updated...", False
    if there > updated:
        return f"{waiting}{there - updated} old replicas are pending termination...", False
    if available < updated:
        return f"{waiting}{available} of {updated} updated replicas are available...", False
    return f"deployment {name} successfully rolled out", True


def daemon_set_progress(obj: Obj, _: int) -> tuple[str, bool]:
    meta, status = obj["metadata"], obj.get("status") or {}
    name = quote(meta["name"])
    _only_rolling(obj)
    if meta.get("generation", 0) > status.get("observedGeneration", 0):
        return "Waiting for daemon set spec update to be observed...", False
    wanted, updated = status.get("desiredNumberScheduled", 0), status.get("updatedNumberScheduled", 0)
    available = status.get("numberAvailable", 0)
    waiting = f"Waiting for daemon set {name} rollout to finish: "
    if updated < wanted:
        return f"{waiting}{updated} out of {wanted} new pods have been updated...", False
    if available < wanted:
        return f"{waiting}{available} of {wanted} updated pods are available...", False
    return f"daemon set {name} successfully rolled out", True


def stateful_set_progress(obj: Obj, _: int) -> tuple[str, bool]:
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    _only_rolling(obj)
    observed = status.get("observedGeneration", 0)
    if not observed or meta.get("generation", 0) > observed:
        return "Waiting for statefulset spec update to be observed...", False
    wanted, ready, updated = spec.get("replicas"), status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    if wanted is not None and ready < wanted:
        return f"Waiting for {wanted - ready} pods to be ready...", False
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate")
    if rolling is not None:
        part = None if wanted is None or rolling.get("partition") is None else wanted - rolling["partition"]
        if part is not None and updated < part:
            line = f"Waiting for partitioned roll out to finish: {updated} out of {part} new pods have been updated..."
            return line, False
        return f"partitioned roll out complete: {updated} new pods have been updated...", True
    new, current = status.get("updateRevision", ""), status.get("currentRevision", "")
    if new != current:
        return f"waiting for statefulset rolling update to complete {updated} pods at revision {new}...", False
    count = status.get("currentReplicas", 0)
    return f"statefulset rolling update complete {count} pods at revision {current}...", True


def _only_rolling(obj: Obj) -> None:
    if ((obj.get("spec") or {}).get("updateStrategy") or {}).get("type") != "RollingUpdate":
        raise Failed("rollout status is only available for RollingUpdate strategy type")


_PROGRESS = {
    ("apps", "Deployment"): deployment_progress,
    ("apps", "DaemonSet"): daemon_set_progress,
    ("apps", "StatefulSet"): stateful_set_progress,
}

COMMAND = Command(
    "Show the status of the rollout",
    run,
    (
        *FLAGS,
        switch("watch", "w", default=True, help="Watch the status of the rollout until it's done."),
        number("revision", help="Fail unless this is the revision that is being rolled out; 0: whichever it is."),
        duration("timeout", help="How long to wait for the end; 0 means: for ever."),
    ),
    usage="(TYPE NAME | TYPE/NAME) [flags]",
    examples="""
    # Until it is through
    setpoint rollout status deployment/web

    # How it is now
    setpoint rollout status deployment/web --watch=false
    """,
)
