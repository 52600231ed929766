"""`delete`: delete objects by file, by kind and name, or by selector, and wait until they are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all, with_source
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES, FILES, SELECTORS, Chosen, Target, choose, listed, shown_kind
from setpoint.cli.waiting import FOREVER, Deadline, until_gone
from setpoint.cli.writing import DRY_RUN, DryRun, dry_run
from setpoint.cli.writing.options import send_raw
from setpoint.meta.errors import ApiError, Forbidden, MethodNotAllowed, NotFound
from setpoint.meta.goformat import parse_bool

CASCADE = (
    text(
        "cascade",
        default="background",
        help='What becomes of dependents: "background", "orphan", or "foreground".',
        bare="background",
        choices=("background", "orphan", "foreground"),
    ),
)
_POLICIES = {"background": "Background", "orphan": "Orphan", "foreground": "Foreground"}


def propagation(invocation: Invocation) -> str:
    """Return the propagation policy. Raise Failed."""
    word: str = invocation.flags.cascade
    if (cascades := parse_bool(word)) is not None:
        meant = "background" if cascades else "orphan"
        invocation.print_err(
            f"warning: --cascade={word} is deprecated (boolean value) and can be replaced with --cascade={meant}."
        )
        word = meant
    if word not in _POLICIES:
        raise Failed(f'invalid cascade value ({word}). Must be "background", "foreground", or "orphan"')
    return _POLICIES[word]


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    policy = propagation(invocation)
    by_selector = flags.all or flags.selector or flags.field_selector
    forgiving = flags.ignore_not_found or (by_selector and not flags.given("ignore-not-found"))
    grace = _grace(invocation)
    dry = dry_run(invocation)
    chosen = None if flags.raw else await choose(invocation, everything=flags.all)
    if flags.output not in ("", "name"):
        raise Failed(f"unexpected -o output mode: {flags.output}. We only support '-o name'")
    if flags.force and grace == 0:
        invocation.print_err(
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been "
            "terminated. The resource may continue to run on the cluster indefinitely."
        )
    elif flags.force:
        raise Failed("--force and --grace-period greater than 0 cannot be specified together")
    if chosen is None:
        if flags.interactive:
            raise Failed("--interactive can not be used with --raw")
        await send_raw(invocation, "DELETE", flags.raw)
        return
    wanted = await _confirmed(invocation, chosen, forgiving) if flags.interactive else None
    if wanted is None and flags.interactive:
        return
    await _delete(invocation, chosen, wanted, policy, grace, dry, forgiving)


def _grace(invocation: Invocation) -> int | None:
    grace: int = invocation.flags.grace_period
    if invocation.flags.now:
        if grace != -1:
            raise Failed("--now and --grace-period cannot be specified together")
        grace = 1
    if grace == 0 and not invocation.flags.force:
        grace = 1  # only --force deletes without the grace period
    if invocation.flags.force and grace < 0:
        grace = 0
    return grace if grace >= 0 else None


async def _delete(
    invocation: Invocation,
    chosen: Chosen,
    wanted: set[str] | None,
    policy: str,
    grace: int | None,
    dry: DryRun,
    forgiving: bool,
) -> None:
    warn = invocation.namespace_given and not invocation.flags.all_namespaces
    errors: list[Exception] = []
    deleted: list[tuple[Target, str]] = []
    count = 0
    async for target in _targets(invocation, chosen, errors):
        if wanted is not None and target.path not in wanted:
            continue
        count += 1
        if warn and not target.resource.namespaced:
            invocation.print_err("Warning: deleting cluster-scoped resources, not scoped to the provided namespace")
            warn = False
        uid = ""
        if dry is not DryRun.CLIENT:
            try:
                answer = await invocation.client.delete(
                    target.resource,
                    target.name,
                    target.namespace,
                    propagation=policy,
                    grace_period=grace,
                    dry_run=dry is DryRun.SERVER,
                )
            except EXPECTED as error:
                errors.append(with_source(error, "deleting", target.source) if target.source else error)
                continue
            uid = (answer.get("details") or answer.get("metadata") or {}).get("uid") or ""
        _report(invocation, target, grace, dry)
        deleted.append((target, uid))
    raise_all([error for error in errors if not (forgiving and isinstance(error, NotFound))])
    if not count:
        invocation.print("No resources found")
    elif invocation.flags.wait and dry is DryRun.NONE:
        await _wait(invocation, deleted)


async def _targets(invocation: Invocation, chosen: Chosen, errors: list[Exception]) -> AsyncIterator[Target]:
    for target in chosen.targets:
        yield target
    for selection in chosen.selections:
        try:
            found = await listed(invocation, selection)
        except ApiError as error:
            errors.append(error)
            continue
        for target in found:
            yield target


def _report(invocation: Invocation, target: Target, grace: int | None, dry: DryRun) -> None:
    if invocation.flags.output == "name":
        invocation.print(target.shown)
        return
    done = "force deleted" if grace == 0 else "deleted"
    if target.resource.namespaced:
        done += f" from {target.namespace} namespace"
    invocation.print(f'{shown_kind(target.resource)} "{target.name}" {done}{dry.value}')


async def _wait(invocation: Invocation, deleted: list[tuple[Target, str]]) -> None:
    invocation.flush()
    deadline = Deadline(invocation, invocation.flags.timeout or FOREVER)
    errors: list[Exception] = []
    for target, uid in deleted:
        try:
            await deadline.bound(target, until_gone(invocation, target, uid))
        except (Forbidden, MethodNotAllowed):
            continue  # a user who may delete but not read does not wait
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _confirmed(invocation: Invocation, chosen: Chosen, forgiving: bool) -> set[str] | None:
    """Return the paths of the confirmed objects; None if nothing is confirmed."""
    errors: list[Exception] = []
    found = [target async for target in _targets(invocation, chosen, errors)]
    raise_all([error for error in errors if not (forgiving and isinstance(error, NotFound))])
    if not found:
        invocation.print("No resources found")
        return None
    invocation.print(f"You are about to delete the following {len(found)} resource(s):")
    for target in found:
        invocation.print(target.shown)
    invocation.print("Do you want to continue? (y/N): ", end="")
    invocation.flush()
    if (await invocation.io.read_line()).strip().lower() != b"y":
        invocation.print("deletion is cancelled")
        return None
    return {target.path for target in found}


COMMAND = Command(
    "Delete resources by file names, stdin, resources and names, or by resources and label selector",
    run,
    (
        *FILES,
        *SELECTORS,
        *ALL_NAMESPACES,
        *CASCADE,
        *DRY_RUN,
        switch("all", help="Delete all resources, in the namespace of the specified resource types."),
        switch("force", help="Remove from the API at once, without waiting for a graceful end."),
        switch("now", help="Signal for immediate shutdown (same as --grace-period=1)."),
        number("grace-period", default=-1, help="Seconds to end gracefully; negative: the default. 0 needs --force."),
        duration("timeout", help="How long to wait until they are gone; zero means: as long as it takes"),
        switch("ignore-not-found", help='Treat "not found" as a success. Defaults to true with --all and selectors.'),
        switch("wait", default=True, help="Wait for resources to be gone before returning. This waits for finalizers."),
        text("output", "o", help='Output mode. Use "-o name" for shorter output (resource/name).', choices=("name",)),
        text("raw", help="Raw URI to DELETE to the server. Uses the transport specified by the kubeconfig file."),
        switch("interactive", "i", help="Ask before anything is deleted."),
    ),
    usage="([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)]) [flags]",
    about="""
    Delete resources by file names, stdin, resources and names, or by resources and label selector. Some resources,
    such as Pods, end gracefully: they are given a time for that, which --grace-period changes, --now shortens to a
    second, and --force takes away.
    """,
    examples="""
    # What a file describes
    setpoint delete -f ./pod.yaml

    # By kind and names
    setpoint delete pods,services web shop

    # Everything with a label
    setpoint delete pods,services -l app=web

    # A Pod of a node that will not answer again
    setpoint delete pod web --force

    # All Pods, after a question
    setpoint delete pods --all --interactive
    """,
)
