"""`apply view-last-applied`: print the last-applied annotation."""

from __future__ import annotations

import json

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, choose, fetch
from setpoint.cli.writing.annotation import original
from setpoint.meta.body import dump_yaml
from setpoint.meta.gojson import indented_by_two


async def run(call: Invocation) -> None:
    found = await fetch(call, await choose(call, lists=call.namespace_given, everything=call.flags.all))
    texts: list[str] = []
    for target in found:
        kept = original(target.obj or {})
        if kept is not None:
            texts.append(kept)
        elif target.source:
            raise Failed(f"no last-applied-configuration annotation found on resource: {target.name}")
        else:
            call.print_err(f"no last-applied-configuration annotation found on resource: {target.name}")
    for kept in texts:
        if call.flags.output == "json":
            call.print(indented_by_two(json.loads(kept)), end="\n" if kept.endswith("\n") else "")
        elif call.flags.output == "yaml":
            call.print(dump_yaml(json.loads(kept)).decode(), end="")
        else:
            call.usage(f"Unexpected -o output mode: {call.flags.output}, the flag 'output' must be one of yaml|json")


COMMAND = Command(
    "View the latest last-applied-configuration annotations of a resource/object",
    run,
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
)  # fmt: skip
