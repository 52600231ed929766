"""`label`: set and remove labels of objects."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES, FILES, SELECTORS
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, DryRun, Results, dry_run, field_manager
from setpoint.cli.writing.pairs import Change, Pairs, changes, show, split, written
from setpoint.meta.goformat import quote
from setpoint.meta.names import label_value


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    dry = dry_run(invocation)
    results = Results(invocation, dry, apart=True)
    words = split(invocation.args, "label")
    pairs = _parse(words.pairs)
    if flags.list and flags.output:
        raise Failed("--list and --output may not be specified together")
    errors: list[Exception] = []

    def check(before: dict[str, str]) -> None:
        raise_all(
            [
                Failed(f"'{key}' already has a value ({before[key]}), and --overwrite is false")
                for key, value in pairs.new.items()
                if before.get(key, value) != value
            ]
        )

    async for change in changes(invocation, "labels", words, pairs, "pod", check, errors):
        try:
            await _label(invocation, change, pairs, results, dry)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _label(invocation: Invocation, change: Change, pairs: Pairs, results: Results, dry: DryRun) -> None:
    before = ((change.target.obj or {}).get("metadata") or {}).get("labels") or {}
    added = any(before.get(key) != value for key, value in pairs.new.items())
    removed = any(key in before for key in pairs.remove)
    if invocation.flags.list:
        show(invocation, change, "labels")
        return
    if dry is not DryRun.CLIENT and not invocation.flags.local:
        for key in pairs.remove:
            if key not in before:
                invocation.print(f"label {quote(key)} not found.")
        if added or removed:
            await written(invocation, change, dry)
    done = "modified" if added and removed else "labeled" if added else "unlabeled" if removed else "not labeled"
    results.add(change.new, done)


def _parse(typed_value: list[str]) -> Pairs:
    pairs = Pairs({}, [])
    for one in typed_value:
        if "=" in one:
            parts = one.split("=")
            if len(parts) != 2:
                raise Failed(f"invalid label spec: {one}")
            if problems := label_value(parts[1]):
                raise Failed(f"invalid label value: {quote(one)}: {';'.join(problems)}")
            pairs.new[parts[0]] = parts[1]
        elif one.endswith("-"):
            pairs.remove.append(one[:-1])
        else:
            raise Failed(f"unknown label spec: {one}")
    if set(pairs.new) & set(pairs.remove):
        raise Failed("can not both modify and remove a label in the same command")
    return pairs


COMMAND = Command(
    "Update the labels on a resource",
    run,
    (
        *FILES,
        *SELECTORS,
        *ALL_NAMESPACES,
        *OUTPUT,
        *DRY_RUN,
        *RECORD,
        *field_manager("kubectl-label"),
        switch("overwrite", help="Allow labels to be overwritten; otherwise a label that is there is not changed."),
        switch("list", help="If true, display the labels for a given resource."),
        switch("local", help="If true, label will NOT contact api-server but run locally."),
        switch("all", help="Select all resources, in the namespace of the specified resource types"),
        text("resource-version", help="Only if the object is still at this version. For a single object."),
    ),
    usage="[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [flags]",
    about="""
    Update the labels on a resource. Keys and values begin with a letter or number, and have letters, numbers, hyphens,
    dots and underscores, at most 63 of them; a key may have a DNS subdomain and a slash before it.
    """,
    examples="""
    # A label
    setpoint label pods web unhealthy=true

    # A label that may be there with another value
    setpoint label --overwrite pods web status=unhealthy

    # All Pods of the namespace
    setpoint label pods --all status=unhealthy

    # A label taken away
    setpoint label pods web status-
    """,
)
