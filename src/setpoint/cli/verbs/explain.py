"""`explain`: describe a kind and its fields."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import find_kind
from setpoint.client import Resource

_FORMATS = ("plaintext", "plaintext-openapiv2")


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if not invocation.args:
        raise Failed(
            'You must specify the type of resource to explain. Use "setpoint api-resources" for a complete list of '
            "supported resources.\n"
        )
    if len(invocation.args) > 1:
        raise Failed("We accept only this format: explain RESOURCE\n")
    if flags.max_depth > 0 and not flags.recursive:
        raise Failed("--max-depth requires --recursive")
    if flags.max_depth < 0:
        raise Failed("--max-depth must be non-negative")
    resource, path = await _requested_fields(invocation, invocation.args[0])
    if flags.output not in _FORMATS:
        raise Failed(f"unrecognized format: {flags.output}")
    group, version = resource.group, resource.version
    if flags.api_version:
        group, _, version = flags.api_version.rpartition("/")
    if flags.output == "plaintext-openapiv2":
        # Imported here because it is rarely requested.
        from setpoint.cli.explaining import ExplainerV2

        document = await invocation.client.sender.json("GET", "/openapi/v2")
        older = ExplainerV2(document, flags.recursive, flags.max_depth)
        invocation.print(escaped(older.explain(group, version, resource.kind, path)), end="")
        return
    # Imported here because it is not needed if the checks above fail.
    from setpoint.cli.explaining import Explainer

    document = await _document(invocation, group, version, resource.plural)
    explainer = Explainer(document, flags.recursive, flags.max_depth)
    for part in explainer.explain(group, version, resource.plural, path):
        invocation.print(escaped(part), end="")


async def _requested_fields(invocation: Invocation, word: str) -> tuple[Resource, list[str]]:
    """Parse `deployments.spec.template`, or with its group `deployments.apps.spec.template`."""
    word = word.removesuffix(".")
    names = word.split(".")
    if not all(names):
        raise Failed("invalid jsonpath syntax, all nodes must be field nodes")
    resource = await find_kind(invocation, names[0])
    if not invocation.flags.api_version:
        for one in await invocation.client.discovery.resources():
            if names[0] in (one.plural, one.singular_name, *one.short) and one.group and word.startswith(str(one)):
                rest = word.removeprefix(str(one))
                if not rest or rest.startswith("."):
                    return one, [name for name in rest.split(".") if name]
    return resource, names[1:]


async def _document(invocation: Invocation, group: str, version: str, plural: str) -> Any:
    index = await invocation.client.sender.json("GET", "/openapi/v3")
    place = f"apis/{group}/{version}" if group else f"api/{version}"
    found = (index.get("paths") or {}).get(place)
    if found is None:
        raise Failed(f'couldn\'t find resource for "{group}/{version}, Resource={plural}"')
    path, _, query = str(found["serverRelativeURL"]).partition("?")
    return await invocation.client.sender.json("GET", path, query)


COMMAND = Command(
    "Get documentation for a resource",
    run,
    (
        switch("recursive", help="Print the names of all fields, and of the fields of those, without descriptions."),
        number("max-depth", help="With --recursive: how deep; 0 for all the way."),
        text("api-version", help="Of which version: group/version."),
        text("output", "o", default="plaintext", help=f"Format: {', '.join(_FORMATS)}.", choices=_FORMATS),
    ),
    usage="TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2]",
    examples="""
    # What a Pod is
    setpoint explain pods

    # One of its fields
    setpoint explain pods.spec.containers.livenessProbe

    # All names
    setpoint explain deployments --recursive
    """,
)
