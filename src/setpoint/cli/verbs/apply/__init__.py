"""`apply`: apply the desired state of files, by patches computed here or by server-side apply."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import array, duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, from_files
from setpoint.cli.verbs.apply.session import Session
from setpoint.cli.verbs.delete import CASCADE, propagation
from setpoint.cli.writing import (
    DRY_RUN,
    OUTPUT,
    RECORD,
    VALIDATE,
    DryRun,
    Results,
    dry_run,
    field_manager,
    subresource,
    validation,
)

_CLIENT_SIDE, _SERVER_SIDE = "kubectl-client-side-apply", "kubectl"


async def run(invocation: Invocation) -> None:
    session = await _session(invocation)
    errors: list[Exception] = []
    labels, validate = invocation.flags.selector, session.directive != "Ignore"
    targets = [target async for target in from_files(invocation, errors, labels=labels, validate=validate)]
    if not targets and not errors:
        raise Failed("no objects passed to apply")
    applied = await apply_all(session, targets, errors)
    raise_all(errors)
    session.results.all(applied)
    if invocation.flags.prune:
        # Imported here because it is rarely needed.
        from setpoint.cli.verbs.apply.prune import prune

        await prune(session)


async def apply_all(session: Session, targets: list[Target], errors: list[Exception]) -> list[Target]:
    """Apply the targets one after another; failures are appended to `errors`."""
    if session.apply_set is not None:
        targets = session.apply_set.labelled(targets)
        await session.apply_set.before_apply(session, targets)
    if session.invocation.flags.server_side:
        from setpoint.cli.verbs.apply.server_side import apply_one
    else:
        from setpoint.cli.verbs.apply.client_side import apply_one
    applied: list[Target] = []
    for target in targets:
        if target.namespace:
            session.namespaces.add(target.namespace)
        try:
            if not target.name:
                _refuse_nameless(target)
            obj = await apply_one(session, target)
        except EXPECTED as error:
            errors.append(error)
        else:
            session.uids.add((obj.get("metadata") or {}).get("uid") or "")
            applied.append(target.with_object(obj))
    return applied


def _refuse_nameless(target: Target) -> None:
    meta = (target.obj or {}).get("metadata") or {}
    if meta.get("generateName"):
        raise Failed(f"from {meta['generateName']}: cannot use generate name with apply")


async def _session(invocation: Invocation) -> Session:
    """Return the session of the flags, which are all checked before anything is read or written."""
    flags = invocation.flags
    if invocation.args:
        invocation.usage(f"Unexpected args: [{' '.join(invocation.args)}]")
    dry = dry_run(invocation)
    manager = (
        flags.field_manager if flags.given("field-manager") else _SERVER_SIDE if flags.server_side else _CLIENT_SIDE
    )
    policy = propagation(invocation)
    if not flags.filename and not flags.kustomize:
        raise Failed("must specify one of -f and -k")
    session = Session(invocation, dry, validation(invocation), Results(invocation, dry), manager, policy)
    if flags.applyset:
        from setpoint.cli.verbs.apply.prune import parse_parent

        session.apply_set = await parse_parent(invocation, flags.applyset)
    if flags.prune:
        from setpoint.cli.verbs.apply.prune import allowed

        session.prunable = await allowed(invocation)
    await _check(invocation, session)
    return session


async def _check(invocation: Invocation, session: Session) -> None:
    flags = invocation.flags
    if flags.force_conflicts and not flags.server_side:
        raise Failed("--force-conflicts only works with --server-side")
    if session.dry is DryRun.CLIENT and flags.server_side:
        raise Failed("--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)")
    if flags.server_side and flags.force:
        raise Failed("--force cannot be used with --server-side")
    if session.dry is DryRun.SERVER and flags.force:
        raise Failed("--dry-run=server cannot be used with --force")
    if flags.all and flags.selector:
        raise Failed("cannot set --all and --selector at the same time")
    if session.apply_set is not None:
        if not flags.prune:
            raise Failed("--applyset requires --prune")
        await session.apply_set.validate(invocation)
    if flags.prune:
        _check_prune(invocation, session)
    if flags.subresource and not flags.server_side:
        raise Failed("--subresource can only be specified for --server-side")


def _check_prune(invocation: Invocation, session: Session) -> None:
    flags = invocation.flags
    if flags.force:
        raise Failed("--force cannot be used with --prune")
    if session.apply_set is not None:
        for name, given in (("all", flags.all), ("selector", flags.selector), ("prune-allowlist", session.prunable)):
            if given:
                raise Failed(f"--{name} is incompatible with --applyset")
        return
    if not flags.all and not flags.selector:
        raise Failed(
            "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all "
            "flag. If you did not mean to prune all resources, specify a label selector"
        )
    if flags.server_side:
        raise Failed("--prune is in alpha and doesn't currently work on objects created by server-side apply")


COMMAND = Command(
    "Apply a configuration to a resource by file name or stdin",
    run,
    (
        *FILES,
        *OUTPUT,
        *DRY_RUN,
        *VALIDATE,
        *RECORD,
        *CASCADE,
        *field_manager(_CLIENT_SIDE),
        *subresource("Apply to this part of the objects. Only with --server-side."),
        text("selector", "l", help="Selector (label query): of the objects in the files, only those that match."),
        switch("server-side", help="If true, apply runs in the server instead of the client."),
        switch("force-conflicts", help="If true, server-side apply will force the changes against conflicts."),
        switch("overwrite", default=True, help="What was changed in the meantime gives way to what the files say."),
        switch("openapi-patch", default=True, help="Use what the server knows of lists; false: what is built in."),
        switch("prune", help="Delete what was applied before and is not in the files any longer."),
        array("prune-allowlist", help="Overwrite the default allowlist with <group/version/kind> for --prune"),
        switch("all", help="With --prune: look at all objects of the kinds in question."),
        text("applyset", help="The parent that knows what belongs together: [RESOURCE][.GROUP]/NAME."),
        switch("force", help="What cannot be patched is deleted and created anew."),
        number("grace-period", default=-1, help="Seconds to end gracefully, for what is deleted."),
        duration("timeout", help="How long to wait for a deletion; zero means: as long as it takes"),
        switch("wait", help="Wait for deleted resources to be gone."),
    ),
    usage="(-f FILENAME | -k DIRECTORY) [flags]",
    about="""
    Apply a configuration to a resource by file name or stdin. What is not there yet is created. What was applied before
    is kept in an annotation, so that a field which is taken out of the file is taken out of the object too; with
    --server-side the server keeps track of who manages which field.
    """,
    examples="""
    # What a file describes
    setpoint apply -f ./web.yaml

    # What a directory with a kustomization.yaml describes
    setpoint apply -k ./overlays/production

    # What another command prints
    cat web.json | setpoint apply -f -

    # By the server, which says who else manages the same fields
    setpoint apply --server-side -f ./web.yaml

    # And delete what has the label and is not in the file any longer
    setpoint apply --prune -f ./web.yaml -l app=web
    """,
    children={
        "edit-last-applied": Lazy(
            "Edit latest last-applied-configuration annotations of a resource/object",
            "setpoint.cli.verbs.apply.last_applied",
            constant="EDIT",
        ),
        "set-last-applied": Lazy(
            "Set the last-applied-configuration annotation on a live object to match the contents of a file",
            "setpoint.cli.verbs.apply.last_applied",
            constant="SET",
        ),
        "view-last-applied": Lazy(
            "View the latest last-applied-configuration annotations of a resource/object",
            "setpoint.cli.verbs.apply.last_applied",
            constant="VIEW",
        ),
    },
)
