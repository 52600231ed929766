"""`diff --from A [--to B]`: what has changed between two moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import unified_diff
from typing import NamedTuple

from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.past import past_client
from setpoint.cli.resources import Chosen, Selection, choose, shown_kind
from setpoint.client import Client
from setpoint.kinds.catalog import Resource
from setpoint.meta.body import dump_yaml
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.view.differences import SIGNS, Difference, ObjectName, compared, difference_text, differences
from setpoint.view.secrets import SecretMask

_LEFT_OUT = frozenset({"events", "leases", "endpoints", "componentstatuses"})
"""Resources that a comparison of all kinds leaves out: they change all the time, or repeat
others."""
_COMPUTED_GROUPS = frozenset({"metrics.k8s.io"})


class _Found(NamedTuple):
    resource: Resource
    difference: Difference


async def compare(invocation: Invocation) -> None:
    """Print the differences. Raises Exit(1) if there are any, as `diff` does."""
    flags = invocation.flags
    begin, end = getattr(flags, "from"), flags.to
    live = invocation.client
    old, _ = past_client(invocation, begin)
    new = past_client(invocation, end)[0] if end else live
    chosen = await _chosen(invocation, old, new)
    if chosen.single and chosen.targets:
        await _compare_one(invocation, chosen, old, new)
        return
    found: list[_Found] = []
    for target in chosen.targets:
        before, now = [await _get(client, target.resource, target.name, target.namespace) for client in (old, new)]
        found += _differences(invocation, target.resource, _by_name([before]), _by_name([now]))
    for selection in chosen.selections:
        before_all, now_all = [_by_name(await _list(client, selection)) for client in (old, new)]
        found += _differences(invocation, selection.resource, before_all, now_all)
    for each in found:
        invocation.print(_line(invocation, each))
    counts = Counter(each.difference.sign for each in found)
    shown = ", ".join(f"{counts[sign]} {what}" for sign, what in SIGNS.items() if counts[sign])
    invocation.print_err(shown or "nothing has changed")
    if found:
        raise Exit(1)


async def _chosen(invocation: Invocation, old: Client, new: Client) -> Chosen:
    """Return what the arguments name, by the kinds of either moment; without arguments everything."""
    if not invocation.args:
        return Chosen([], await _everything(invocation, old, new), False)
    problem: Failed | None = None
    for client in (old, new):
        invocation.use(client)
        try:
            return await choose(invocation, lists=True)
        except Failed as error:
            problem = problem or error
    assert problem is not None
    raise problem


async def _everything(invocation: Invocation, old: Client, new: Client) -> list[Selection]:
    flags = invocation.flags
    namespace = "" if flags.all_namespaces else invocation.namespace
    kinds: dict[tuple[str, str], Resource] = {}
    for client in (new, old):
        for resource in await client.discovery.resources():
            if "list" not in resource.verbs or resource.plural in _LEFT_OUT or resource.group in _COMPUTED_GROUPS:
                continue
            if resource.namespaced or flags.all_namespaces:
                kinds.setdefault((resource.group, resource.plural), resource)
    return [
        Selection(each, namespace if each.namespaced else "", flags.selector)
        for _, each in sorted(kinds.items(), key=lambda item: item[0])
    ]


async def _get(client: Client, resource: Resource, name: str, namespace: str) -> Obj | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return None


async def _list(client: Client, selection: Selection) -> list[Obj | None]:
    try:
        page = await client.list(
            selection.resource, selection.namespace, label_selector=selection.label_selector, page_size=500
        )
    except NotFound:  # the kind did not exist
        return []
    return [*page.items]


def _by_name(objects: Iterable[Obj | None]) -> dict[ObjectName, Obj]:
    found = [each for each in objects if each is not None]
    return {(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}


def _differences(
    invocation: Invocation, resource: Resource, before: dict[ObjectName, Obj], now: dict[ObjectName, Obj]
) -> list[_Found]:
    return [_Found(resource, each) for each in differences(before, now, status=invocation.flags.status)]


def _line(invocation: Invocation, found: _Found) -> str:
    resource, difference = found
    name = f"{shown_kind(resource)}/{difference.name}"
    if difference.namespace and invocation.flags.all_namespaces:
        name += f" ({difference.namespace})"
    hide_values = _is_secret(resource) and not invocation.flags.show_secrets
    text = difference_text(difference, hide_values=hide_values)
    return escaped(f"{difference.sign} {name}" + (f"  {text}" if text else ""))


def _is_secret(resource: Resource) -> bool:
    return (resource.group, resource.plural) == ("", "secrets")


async def _compare_one(invocation: Invocation, chosen: Chosen, old: Client, new: Client) -> None:
    """Print a unified diff of one object."""
    target, flags = chosen.targets[0], invocation.flags
    before, now = [await _get(client, target.resource, target.name, target.namespace) for client in (old, new)]
    if before is None and now is None:
        raise Failed(f"{target.shown} exists at neither moment")
    before, now = (compared(each, status=flags.status) for each in (before, now))
    if _is_secret(target.resource) and not flags.show_secrets:
        # Imported here because it loads what apply needs.
        from setpoint.cli.verbs.diff import masked

        before, masked_now = masked(before, now or {})
        now = masked_now if now is not None else None
        annotations = SecretMask()  # one of them contains a copy of the data
        before, now = (each and annotations.without_copy(each) for each in (before, now))
    old_lines, new_lines = (dump_yaml(each).decode().splitlines(True) if each else [] for each in (before, now))
    name = f"{shown_kind(target.resource)}/{target.name}"
    begin, end = getattr(flags, "from"), flags.to or "now"
    lines = list(unified_diff(old_lines, new_lines, f"{name} at {begin}", f"{name} at {end}"))
    if lines:
        invocation.print("".join(lines), end="")
        raise Exit(1)
