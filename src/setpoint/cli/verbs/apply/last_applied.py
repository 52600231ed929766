"""`apply edit-last-applied`, `set-last-applied` and `view-last-applied`: the annotation of client-side apply."""

from __future__ import annotations

import json

from setpoint.cli.command import Command
from setpoint.cli.editing import edit_last_applied
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, choose, fetch, from_files
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, VALIDATE, DryRun, Results, dry_run, field_manager
from setpoint.cli.writing.annotation import ANNOTATION, encoded, original
from setpoint.meta.body import dump_yaml
from setpoint.meta.gojson import indented_by_two


async def edit(invocation: Invocation) -> None:
    await edit_last_applied(invocation)


EDIT = Command(
    "Edit latest last-applied-configuration annotations of a resource/object",
    edit,
    (
        *FILES,
        *OUTPUT,
        *RECORD,
        *VALIDATE,
        *field_manager("kubectl-client-side-apply"),
        switch("windows-line-endings", help="Lines end as on Windows."),
    ),
    usage="(RESOURCE/NAME | -f FILENAME) [flags]",
    examples="""
    # What was applied last to a Deployment
    setpoint apply edit-last-applied deployment/web
    """,
)


async def set_annotation(invocation: Invocation) -> None:
    dry = dry_run(invocation)
    results = Results(invocation, dry)
    if not invocation.flags.filename:
        raise Failed("must specify one of -f and -k")
    errors: list[Exception] = []
    changed: list[tuple[Target, str]] = []
    async for target in from_files(invocation, errors):
        assert target.obj is not None
        wanted = encoded(target.obj)
        current = await invocation.client.get(target.resource, target.name, target.namespace)
        last_applied = original(current)
        if last_applied is None and not invocation.flags.create_annotation:
            raise Failed(
                f"no last-applied-configuration annotation found on resource: {target.name}, to create the annotation, "
                "run the command with --create-annotation"
            )
        if last_applied is not None and last_applied.strip() == wanted.strip():
            invocation.print(f"set-last-applied {target.name}: no changes required.")
        else:
            changed.append((target.with_object(current), wanted))
    raise_all(errors)
    for target, wanted in changed:
        found = target.obj or {}
        if dry is not DryRun.CLIENT:
            found = await invocation.client.patch(
                target.resource,
                target.name,
                {"metadata": {"annotations": {ANNOTATION: wanted}}},
                target.namespace,
                dry_run=dry is DryRun.SERVER,
            )
        results.add(found, "configured")


SET = Command(
    "Set the last-applied-configuration annotation on a live object to match the contents of a file",
    set_annotation,
    (
        texts("filename", "f", help="Filename, directory, or URL to files that say what was applied"),
        switch("recursive", "R", hidden=True),
        *OUTPUT,
        *DRY_RUN,
        switch("create-annotation", help="Create the annotation if the object does not have it"),
    ),
    usage="-f FILENAME [flags]",
    examples="""
    # As if the file had been applied
    setpoint apply set-last-applied -f web.yaml

    # And for an object that was never applied
    setpoint apply set-last-applied -f web.yaml --create-annotation=true
    """,
)


async def view(invocation: Invocation) -> None:
    found = await fetch(
        invocation, await choose(invocation, lists=invocation.namespace_given, everything=invocation.flags.all)
    )
    texts: list[str] = []
    for target in found:
        last_applied = original(target.obj or {})
        if last_applied is not None:
            texts.append(last_applied)
        elif target.source:
            raise Failed(f"no last-applied-configuration annotation found on resource: {target.name}")
        else:
            invocation.print_err(f"no last-applied-configuration annotation found on resource: {target.name}")
    for last_applied in texts:
        if invocation.flags.output == "json":
            invocation.print(indented_by_two(json.loads(last_applied)), end="\n" if last_applied.endswith("\n") else "")
        elif invocation.flags.output == "yaml":
            invocation.print(dump_yaml(json.loads(last_applied)).decode(), end="")
        else:
            invocation.usage(
                f"Unexpected -o output mode: {invocation.flags.output}, the flag 'output' must be one of yaml|json"
            )


VIEW = Command(
    "View the latest last-applied-configuration annotations of a resource/object",
    view,
    (
        *FILES,
        text("output", "o", default="yaml", help="Output format. One of (yaml, json)", choices=("yaml", "json")),
        switch("all", help="Select all resources in the namespace of the specified resource types"),
        text("selector", "l", help="Selector (label query) to filter on."),
    ),
    usage="(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME) [flags]",
    examples="""
    # What was applied last to a Deployment
    setpoint apply view-last-applied deployment/web

    # The same in JSON, of the objects in a file
    setpoint apply view-last-applied -f web.yaml -o json
    """,
)
