"""`api-resources` and `api-versions`: list the resources and the group versions of the server."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.tabwriter import align
from setpoint.client import Resource

_SORTS = ("name", "kind")


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if invocation.args:
        invocation.usage(f"unexpected arguments: [{' '.join(invocation.args)}]")
    if flags.output not in ("", "wide", "name"):
        raise Failed(f"--output {flags.output} is not available")
    if flags.sort_by not in ("", *_SORTS):
        raise Failed("--sort-by accepts only name or kind")
    found = await invocation.client.discovery.resources(fresh=not flags.cached)
    shown = _chosen(invocation, found)
    if flags.sort_by:
        shown.sort(key=lambda one: one.kind if flags.sort_by == "kind" else one.plural)
    if flags.output == "name":
        for one in shown:
            invocation.print(str(one))
    else:
        _table(invocation, shown)
    if invocation.client.discovery.missing:
        missing = invocation.client.discovery.missing
        raise Failed(
            f"unable to retrieve the complete list of server APIs: {', '.join(map(': '.join, missing.items()))}"
        )


def _chosen(invocation: Invocation, found: Iterable[Resource]) -> list[Resource]:
    """Return each resource once, in the server's preferred version, in kubectl's order."""
    flags = invocation.flags
    preferred: dict[tuple[str, str], Resource] = {}
    versions: dict[str, str] = {}
    for one in found:
        if versions.setdefault(one.group, one.version) == one.version:
            preferred.setdefault((one.group, one.plural), one)
    shown = [
        one
        for one in preferred.values()
        if one.verbs
        and (not flags.given("api-group") or one.group == flags.api_group)
        and (not flags.given("namespaced") or one.namespaced == flags.namespaced)
        and set(flags.verbs) <= set(one.verbs)
        and set(flags.categories) <= set(one.categories)
    ]
    return sorted(shown, key=lambda one: (one.group, one.plural))


def _table(invocation: Invocation, shown: Iterable[Resource]) -> None:
    wide = invocation.flags.output == "wide"
    rows = [] if invocation.flags.no_headers else [["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]]
    if rows and wide:
        rows[0] += ["VERBS", "CATEGORIES"]
    for one in shown:
        row = [one.plural, ",".join(one.short), one.api_version, str(one.namespaced).lower(), one.kind]
        if wide:
            row += [",".join(sorted(one.verbs)), ",".join(one.categories)]
        rows.append(row)
    if rows:
        invocation.print(align("\n".join(map("\t".join, rows)), least=6, padding=3))


COMMAND = Command(
    "Print the supported API resources on the server",
    run,
    (
        text("output", "o", help="Output format. One of: (wide, name).", choices=("wide", "name")),
        switch("no-headers", help="When using the default or custom-column output format, don't print headers."),
        text("api-group", help="Limit to resources in the specified API group."),
        switch("namespaced", default=True, help="If false, non-namespaced resources will be returned."),
        texts("verbs", help="Limit to resources that support the specified verbs."),
        texts("categories", help="Limit to resources that belong to the specified categories."),
        switch("cached", help="Use the cached list of resources if available."),
        text("sort-by", help=f"Sort by one of: {', '.join(_SORTS)}.", choices=_SORTS),
    ),
    examples="""
    # Print the supported API resources
    setpoint api-resources

    # Print the supported namespaced resources that can be listed
    setpoint api-resources --namespaced=true --verbs=list
    """,
)


async def list_versions(invocation: Invocation) -> None:
    if invocation.args:
        invocation.usage(f"unexpected arguments: [{' '.join(invocation.args)}]")
    found = {one.api_version for one in await invocation.client.discovery.resources(fresh=True)}
    for version in sorted(found):
        invocation.print(version)


VERSIONS = Command(
    'Print the supported API versions on the server, in the form of "group/version"',
    list_versions,
    examples="""
    # Print the supported API versions
    setpoint api-versions
    """,
)
