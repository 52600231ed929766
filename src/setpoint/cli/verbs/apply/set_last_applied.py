"""`apply set-last-applied`: set only the annotation, as if a file had been applied."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import switch, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target, from_files
from setpoint.cli.writing import DRY_RUN, OUTPUT, DryRun, Results, dry_run
from setpoint.cli.writing.annotation import ANNOTATION, encoded, original


async def run(call: Invocation) -> None:
    dry = dry_run(call)
    results = Results(call, dry)
    if not call.flags.filename:
        raise Failed("must specify one of -f and -k")
    errors: list[Exception] = []
    changed: list[tuple[Target, str]] = []
    async for target in from_files(call, errors):
        assert target.obj is not None
        wanted = encoded(target.obj)
        current = await call.client.get(target.resource, target.name, target.namespace)
        kept = original(current)
        if kept is None and not call.flags.create_annotation:
            raise Failed(
                f"no last-applied-configuration annotation found on resource: {target.name}, to create the annotation, "
                "run the command with --create-annotation"
            )
        if kept is not None and kept.strip() == wanted.strip():
            call.print(f"set-last-applied {target.name}: no changes required.")
        else:
            changed.append((target.with_object(current), wanted))
    raise_all(errors)
    for target, wanted in changed:
        found = target.obj or {}
        if dry is not DryRun.CLIENT:
            found = await call.client.patch(
                target.resource,
                target.name,
                {"metadata": {"annotations": {ANNOTATION: wanted}}},
                target.namespace,
                dry_run=dry is DryRun.SERVER,
            )
        results.add(found, "configured")


COMMAND = Command(
    "Set the last-applied-configuration annotation on a live object to match the contents of a file",
    run,
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
