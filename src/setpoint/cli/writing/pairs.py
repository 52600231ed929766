"""Parse `KEY=VALUE` and `KEY-`, and change labels or annotations by them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from setpoint.cli.failures import EXPECTED, Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target, choose, fetch, local_targets
from setpoint.cli.writing.options import DryRun, dry_run, recorded
from setpoint.meta.objects import Obj
from setpoint.meta.patch import merge_patch_between


class Words(NamedTuple):
    resources: list[str]
    pairs: list[str]


class Pairs(NamedTuple):
    new: dict[str, str]
    remove: list[str]


def split(args: list[str], what: str) -> Words:
    """Split the arguments into objects and changes. Raise Failed."""
    found = Words([], [])
    for word in args:
        is_pair = ("=" in word and word[0] != "=") or (word.endswith("-") and word != "-")
        if is_pair:
            found.pairs.append(word)
        elif found.pairs:
            raise Failed(f"all resources must be specified before {what} changes: {word}")
        else:
            found.resources.append(word)
    return found


class Change(NamedTuple):
    """One object before and after a change."""

    target: Target
    new: Obj
    given: Obj
    """The new labels or annotations."""
    single: bool


async def changes(
    invocation: Invocation,
    field: str,
    words: Words,
    pairs: Pairs,
    examples: str,
    check: Callable[[dict[str, str]], None],
    errors: list[Exception],
) -> AsyncIterator[Change]:
    """Yield every selected object with its `field` of metadata changed; nothing is written yet.

    `check` rejects values that must not be overwritten; failures are appended to `errors`.
    """
    flags = invocation.flags
    _check(invocation, words, pairs, field, examples)
    if flags.local:
        targets = list(local_targets(invocation))
        single = len(targets) == 1 and flags.filename != ["-"]
    else:
        chosen = await choose(invocation, words.resources, lists=flags.all)
        single = chosen.single
        if not single and flags.resource_version:
            raise Failed("--resource-version may only be used with a single resource")
        targets = await fetch(invocation, chosen, errors)
    for target in targets:
        assert target.obj is not None
        meta = target.obj.get("metadata") or {}
        before = meta.get(field) or {}
        try:
            if not flags.overwrite:
                check(before)
        except EXPECTED as error:
            errors.append(error)
            continue
        after = {key: value for key, value in {**before, **pairs.new}.items() if key not in pairs.remove}
        new = {**target.obj, "metadata": {**meta, field: after}}
        if flags.resource_version:
            new["metadata"]["resourceVersion"] = flags.resource_version
        yield Change(target, new, after, single)


def _check(invocation: Invocation, words: Words, pairs: Pairs, field: str, examples: str) -> None:
    flags = invocation.flags
    for name in ("selector", "field-selector"):
        if flags.all and getattr(flags, name.replace("-", "_")):
            raise Failed(f"cannot set --all and --{name} at the same time")
    files = bool(flags.filename or getattr(flags, "kustomize", ""))
    if not flags.local:
        if not words.resources and not files:
            raise Failed("one or more resources must be specified as <resource> <name> or <resource>/<name>")
    elif dry_run(invocation) is DryRun.SERVER:
        raise Failed("cannot specify --local and --dry-run=server - did you mean --dry-run=client?")
    elif words.resources:
        yaml, json = f"{examples}.yaml", f"{examples}.json"
        raise Failed(f"can only use local files by -f {yaml} or --filename={json} when --local=true is set")
    elif not files:
        raise Failed(f"one or more files must be specified as -f {examples}.yaml or --filename={examples}.json")
    if not pairs.new and not pairs.remove and not flags.list:
        raise Failed(f"at least one {field.removesuffix('s')} update is required")


async def written(invocation: Invocation, change: Change, dry: DryRun) -> Obj:
    """Send the change to the server as a merge patch."""
    target = change.target
    assert target.obj is not None
    before = target.obj
    if invocation.flags.resource_version:
        meta = {key: value for key, value in before["metadata"].items() if key != "resourceVersion"}
        before = {**before, "metadata": meta}
    patch = merge_patch_between(before, recorded(invocation, change.new))
    return await invocation.client.patch(
        target.resource,
        target.name,
        patch,
        target.namespace,
        dry_run=dry is DryRun.SERVER,
        field_manager=invocation.flags.field_manager,
    )


def show(invocation: Invocation, change: Change, what: str) -> None:
    """Print the labels or annotations, for `--list`."""
    indent = ""
    if not change.single:
        indent = " "
        of = change.target.resource
        invocation.print(f"Listing {what} for {of.kind}.{of.group}/{change.target.name}:")
    for key, value in sorted(change.given.items()):
        invocation.print(f"{indent}{key}={value}")
