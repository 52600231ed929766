"""`annotate`: set and remove annotations of objects."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES, FILES, SELECTORS
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, DryRun, Results, dry_run, field_manager
from setpoint.cli.writing.pairs import Pairs, changes, show, split, written

_CHANGE_CAUSE = "kubernetes.io/change-cause"


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    dry = dry_run(invocation)
    words = split(invocation.args, "annotation")
    pairs = _parse(words.pairs)
    if flags.list and flags.output:
        raise Failed("--list and --output may not be specified together")
    both = [key for key in pairs.remove if key in pairs.new]
    if both:
        raise Failed(
            f"can not both modify and remove the following annotation(s) in the same command: {', '.join(both)}"
        )
    results = Results(invocation, dry)

    def check(before: dict[str, str]) -> None:
        there = [
            f"'{key}' already has a value ({before[key]})"
            for key, value in pairs.new.items()
            if key != _CHANGE_CAUSE and before.get(key, value) != value
        ]
        if there:
            raise Failed(f"--overwrite is false but found the following declared annotation(s): {'; '.join(there)}")

    errors: list[Exception] = []
    async for change in changes(invocation, "annotations", words, pairs, "rsrc", check, errors):
        try:
            if flags.list:
                show(invocation, change, "annotations")
            elif dry is DryRun.CLIENT or flags.local:
                results.add(change.new, "annotated")
            else:
                results.add(await written(invocation, change, dry), "annotated")
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


def _parse(typed_value: list[str]) -> Pairs:
    pairs = Pairs({}, [])
    for one in typed_value:
        if "=" in one:
            key, _, value = one.partition("=")
            pairs.new[key] = value
        else:
            pairs.remove.append(one[:-1])
    return pairs


COMMAND = Command(
    "Update the annotations on a resource",
    run,
    (
        FILES[0],
        FILES[1]._replace(default=True),
        FILES[2],
        *SELECTORS,
        *ALL_NAMESPACES,
        *OUTPUT,
        *DRY_RUN,
        *RECORD,
        *field_manager("kubectl-annotate"),
        switch("overwrite", help="Allow annotations to be overwritten; otherwise one that is there is not changed."),
        switch("list", help="If true, display the annotations for a given resource."),
        switch("local", help="If true, annotate will NOT contact api-server but run locally."),
        switch("all", help="Select all resources, in the namespace of the specified resource types"),
        text("resource-version", help="Only if the object is still at this version. For a single object."),
    ),
    usage="[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [flags]",
    about="""
    Update the annotations on one or more resources: keys and values that may be large and of any form, for people and
    for programs.
    """,
    examples="""
    # An annotation
    setpoint annotate pods web description='my frontend'

    # One that may be there with another value
    setpoint annotate --overwrite pods web description='my frontend running nginx'

    # Taken away
    setpoint annotate pods web description-
    """,
)
