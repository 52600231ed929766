"""`replace`: replace objects with those of files; with --force, delete and create them."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all, with_source
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, from_files, shown_kind
from setpoint.cli.verbs.delete import CASCADE, propagation
from setpoint.cli.waiting import FOREVER, Deadline, until_gone
from setpoint.cli.writing import (
    DRY_RUN,
    OUTPUT,
    RECORD,
    SAVE_CONFIG,
    VALIDATE,
    DryRun,
    Results,
    dry_run,
    field_manager,
    recorded,
    subresource,
    validation,
)
from setpoint.cli.writing.annotation import saved
from setpoint.cli.writing.options import send_raw
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj

_GONE_WITHIN = 300.0


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    directive, dry = validation(invocation), dry_run(invocation)
    results = Results(invocation, dry)
    policy = propagation(invocation)
    grace = 1 if flags.grace_period == 0 else flags.grace_period
    if not flags.filename and not flags.kustomize:
        raise Failed("must specify one of -f and -k")
    if grace >= 0 and not flags.force:
        raise Failed("--grace-period must have --force specified")
    if flags.timeout and not flags.force:
        raise Failed("--timeout must have --force specified")
    if flags.force and dry is not DryRun.NONE:
        raise Failed("--dry-run can not be used when --force is set")
    if flags.raw:
        await send_raw(invocation, "PUT", flags.raw)
        return
    errors: list[Exception] = []
    found = from_files(invocation, errors, validate=directive != "Ignore")
    if flags.force:
        targets = [target async for target in found]
        raise_all(errors)
        await _forced(invocation, targets, results, policy, grace if grace >= 0 else None, directive)
        return
    async for target in found:
        try:
            results.add(await _replaced(invocation, target, dry, directive), "replaced")
        except EXPECTED as error:
            errors.append(with_source(error, "replacing", target.source))
    raise_all(errors)


def _wanted(invocation: Invocation, target: Target) -> Obj:
    assert target.obj is not None
    return recorded(invocation, saved(target.obj, invocation.flags.save_config))


async def _replaced(invocation: Invocation, target: Target, dry: DryRun, directive: str) -> Obj:
    obj = _wanted(invocation, target)
    if dry is DryRun.CLIENT:
        return obj
    if not (obj.get("metadata") or {}).get("resourceVersion"):
        # Any existing object is replaced; a missing one is left to the server's error.
        part = invocation.flags.subresource
        try:
            current = await invocation.client.get(target.resource, target.name, target.namespace, subresource=part)
        except ApiError:
            current = {"metadata": {}}
        if version := current["metadata"].get("resourceVersion"):
            obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
    return await invocation.client.update(
        obj,
        resource=target.resource,
        subresource=invocation.flags.subresource,
        dry_run=dry is DryRun.SERVER,
        field_manager=invocation.flags.field_manager,
        field_validation=directive,
    )


async def _forced(
    invocation: Invocation, targets: list[Target], results: Results, policy: str, grace: int | None, directive: str
) -> None:
    deleted: list[tuple[Target, str]] = []
    errors: list[Exception] = []
    for target in targets:
        try:
            answer = await invocation.client.delete(
                target.resource, target.name, target.namespace, propagation=policy, grace_period=grace
            )
        except NotFound:
            continue
        except EXPECTED as error:
            errors.append(with_source(error, "deleting", target.source))
            continue
        if invocation.flags.output == "name":
            invocation.print(target.shown)
        else:
            where = f" from {target.namespace} namespace" if target.namespace else ""
            invocation.print(f'{shown_kind(target.resource)} "{target.name}" deleted{where}')
        deleted.append((target, (answer.get("details") or answer.get("metadata") or {}).get("uid") or ""))
    raise_all(errors)
    invocation.flush()
    seconds = invocation.flags.timeout or (FOREVER if invocation.flags.wait else _GONE_WITHIN)
    deadline = Deadline(invocation, seconds)
    for target, uid in deleted:
        await deadline.bound(target, until_gone(invocation, target, uid))
    for target in targets:
        try:
            results.add(await _created(invocation, target, directive), "replaced")
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)
    if not targets:
        raise Failed("no objects passed to replace")


async def _created(invocation: Invocation, target: Target, directive: str) -> Obj:
    obj = _wanted(invocation, target)
    meta = {key: one for key, one in (obj.get("metadata") or {}).items() if key != "resourceVersion"}
    return await invocation.client.create(
        {**obj, "metadata": meta},
        resource=target.resource,
        namespace=target.namespace,
        field_manager=invocation.flags.field_manager,
        field_validation=directive,
    )


COMMAND = Command(
    "Replace a resource by file name or stdin",
    run,
    (
        *FILES,
        *OUTPUT,
        *DRY_RUN,
        *VALIDATE,
        *SAVE_CONFIG,
        *RECORD,
        *CASCADE,
        *field_manager("kubectl-replace"),
        *subresource("Replace this part of the object."),
        switch("force", help="Delete and create anew."),
        number("grace-period", default=-1, help="Seconds to end gracefully, for what is deleted."),
        duration("timeout", help="How long to wait until it is gone; zero means: five minutes"),
        switch("wait", help="Wait for resources to be gone before they are created anew, however long that takes."),
        text("raw", help="Raw URI to PUT to the server. Uses the transport specified by the kubeconfig file."),
    ),
    usage="-f FILENAME [flags]",
    about="""
    Replace a resource by file name or stdin. The file must be complete: what it does not say is gone afterwards. An
    object that names its resourceVersion is replaced only if it is still at that version.
    """,
    examples="""
    # By what a file says
    setpoint replace -f ./pod.yaml

    # Changed on the way
    setpoint get pod web -o yaml | sed 's/nginx:1/nginx:2/' | setpoint replace -f -

    # Deleted and created anew
    setpoint replace --force -f ./pod.yaml
    """,
)
