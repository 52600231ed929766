"""`history`: the changes of one object, with their authors. `mark`: names for moments."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.past import past_client, revision_of
from setpoint.cli.resources import Target, choose
from setpoint.cli.tabwriter import align
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.moments import MAX_MARKS, is_mark_name
from setpoint.meta.times import human_duration
from setpoint.view.actors import actor_of
from setpoint.view.changes import ABSENT, has_path, value_at
from setpoint.view.history import CREATED, KNOWN, UPDATED, ObjectChange

PATH = "/setpoint/v1/history"
_PAGE = 500
_PAUSE = 1.0
"""Seconds between two questions of `--watch`."""
_SYSTEM, _MARKS = "kube-system", "setpoint-marks"
_NOT_SETPOINT = "the server keeps no history of objects: it is not a Setpoint API server, or an older one"


class _History:
    """The changes of an object, the newest first."""

    def __init__(self, changes: list[ObjectChange], oldest: int) -> None:
        self.changes = changes
        self.oldest = oldest
        """When the history begins, in milliseconds since the epoch; 0 if it is not known."""


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if flags.output not in ("", "wide", "json"):
        raise Failed("--output must be wide or json")
    if flags.deleted:
        await _deleted(invocation)
        return
    target = await _target(invocation)
    history = await _read(invocation, target)
    chosen = _chosen(invocation, history.changes)
    if chosen and flags.field and await _begins_without(invocation, target, chosen[-1], flags.field):
        chosen.pop()
    if flags.output == "json":
        invocation.print(json.dumps([each.to_json() for each in chosen], indent=2, ensure_ascii=False))
    else:
        _print(invocation, chosen, history)
    if flags.watch:
        await _watch(invocation, target, history.changes[0].revision if history.changes else 0)


async def _target(invocation: Invocation) -> Target:
    chosen = await choose(invocation)
    if len(chosen.targets) != 1 or chosen.selections:
        raise Failed("name one object: `setpoint history deployment/web`")
    return chosen.targets[0]


async def _read(invocation: Invocation, target: Target, after: int = 0) -> _History:
    """Return the changes after a revision, within the time of `--since`."""
    resource, since = target.resource, _since(invocation)
    query = {
        "group": resource.group,
        "resource": resource.plural,
        "namespace": target.namespace,
        "name": target.name,
        "limit": str(_PAGE),
    }
    found: list[ObjectChange] = []
    while True:
        page = await _ask(invocation, query)
        try:
            found += map(ObjectChange.from_json, page["changes"])
            oldest, following = int(page["oldest"]["at"]), int(page["next"])
        except (LookupError, TypeError, ValueError) as error:
            raise Failed(f"the answer of the server cannot be read: {error!r}") from None
        passed = found and (found[-1].revision <= after or 0 < _time(found[-1]) < since)
        if not following or passed:
            return _History([each for each in found if each.revision > after and not 0 < _time(each) < since], oldest)
        query["before"] = str(following)


async def _ask(invocation: Invocation, query: dict[str, str]) -> Any:
    try:
        return await invocation.client.sender.json("GET", PATH, urlencode(query))
    except NotFound as error:
        if not (error.details or {}).get("name"):
            raise Failed(_NOT_SETPOINT) from None
        raise


def _since(invocation: Invocation) -> int:
    """Return the time of `--since` in milliseconds since the epoch; 0 without it."""
    seconds = invocation.flags.since
    return int((invocation.io.clock.now().timestamp() - seconds) * 1000) if seconds else 0


def _time(change: ObjectChange) -> int:
    return change.cause.at if change.cause is not None else 0


def _chosen(invocation: Invocation, changes: list[ObjectChange]) -> list[ObjectChange]:
    """Return the changes of the field that is asked for."""
    field = invocation.flags.field
    if not field:
        return changes
    paths = _paths_of(field)
    return [each for each in changes if each.kind != UPDATED or any(has_path(change, paths) for change in each.fields)]


def _paths_of(field: str) -> tuple[str, str]:
    """Return the paths that a field may have: fields of the spec can be named without it."""
    return field, f"spec.{field}"


async def _begins_without(invocation: Invocation, target: Target, first: ObjectChange, field: str) -> bool:
    """Return whether the oldest change left the object without the field; False if this is not known."""
    if first.kind not in (CREATED, KNOWN):
        return False
    client, _ = past_client(invocation, str(first.revision))
    try:
        obj = await client.get(target.resource, target.name, target.namespace)
    except ApiError:
        return False
    return all(value_at(obj, path) is ABSENT for path in _paths_of(field))


def _print(invocation: Invocation, changes: list[ObjectChange], history: _History) -> None:
    wide, now = invocation.flags.output == "wide", invocation.io.clock.now()
    shown = [
        each for at, each in enumerate(changes) if wide or not at or invocation.flags.field or not each.status_only
    ]
    notes = []
    if shown:
        invocation.print(align("\n".join(_lines(shown, now, wide)) + "\n", padding=3), end="")
    elif invocation.flags.field:
        notes.append(f"no change of the field {invocation.flags.field} is known")
    if history.oldest:
        notes.append(f"the history begins {datetime.fromtimestamp(history.oldest / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC")
    if folded := len(changes) - len(shown):
        what = "status change is" if folded == 1 else "status changes are"
        notes.append(f"{folded} {what} left out, -o wide shows {'it' if folded == 1 else 'them'}")
    if notes:
        invocation.print_err("; ".join(notes))


def _lines(changes: list[ObjectChange], now: datetime, wide: bool) -> list[str]:
    lines = ["REV\tTIME\tWHO\tVERB\tWHAT" if wide else "REV\tWHEN\tWHO\tWHAT"]
    for change in changes:
        at = _time(change)
        moment = datetime.fromtimestamp(at / 1000, UTC)
        if wide:
            when = f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z" if at else "<unknown>"
        else:
            when = human_duration(max(0.0, (now - moment).total_seconds())) if at else "<unknown>"
        who = escaped(actor_of(change.cause)) if change.kind != KNOWN else "<unknown>"
        what = escaped(change.text)
        if change.cause is not None and change.cause.claim.reason and wide:
            what += f' "{escaped(change.cause.claim.reason)}"'
        verb = f"\t{escaped(change.cause.verb) if change.cause is not None else '<unknown>'}" if wide else ""
        lines.append(f"{change.revision}\t{when}\t{who}{verb}\t{what}")
    return lines


async def _watch(invocation: Invocation, target: Target, last: int) -> None:
    """Print further changes as they happen, until interrupted."""
    while True:
        invocation.flush()
        await invocation.io.clock.sleep(_PAUSE)
        changes = (await _read(invocation, target, last)).changes
        if not changes:
            continue
        last = changes[0].revision
        chosen = _chosen(invocation, changes)[::-1]
        if invocation.flags.output == "json":
            for each in chosen:
                invocation.print(json.dumps(each.to_json(), ensure_ascii=False))
        else:
            lines = _lines(chosen, invocation.io.clock.now(), invocation.flags.output == "wide")[1:]
            invocation.print(align("\n".join(lines) + "\n", padding=3), end="")


async def _deleted(invocation: Invocation) -> None:
    """Print the objects of a kind that were deleted, the last one first."""
    chosen = await choose(invocation, lists=True) if invocation.args else None
    if chosen is None or len(chosen.selections) != 1:
        raise Failed("name a kind: `setpoint history pods --deleted`")
    selection = chosen.selections[0]
    query = {
        "group": selection.resource.group,
        "resource": selection.resource.plural,
        "namespace": selection.namespace,
        "deleted": "true",
    }
    page = await _ask(invocation, query)
    if invocation.flags.output == "json":
        invocation.print(json.dumps(page["deleted"], indent=2, ensure_ascii=False))
        return
    lines = ["REV\tWHEN\tNAMESPACE\tNAME\tWHO"] if selection.resource.namespaced else ["REV\tWHEN\tNAME\tWHO"]
    now, since = invocation.io.clock.now(), _since(invocation)
    for each in page["deleted"]:
        change = ObjectChange.from_json(each)
        at = _time(change)
        author = ObjectChange.from_json(each["requested"]).cause if "requested" in each else change.cause
        if 0 < at < since:
            continue
        when = human_duration(max(0.0, now.timestamp() - at / 1000)) if at else "<unknown>"
        place = f"{escaped(str(each['namespace']))}\t" if selection.resource.namespaced else ""
        who = escaped(actor_of(author))
        lines.append(f"{change.revision}\t{when}\t{place}{escaped(str(each['name']))}\t{who}")
    if len(lines) == 1:
        invocation.print_err("No deleted objects are known.")
        return
    invocation.print(align("\n".join(lines) + "\n", padding=3), end="")


COMMAND = Command(
    "Show the changes of an object: when, who, what",
    run,
    (
        text("output", "o", help="Output format. One of: (wide, json).", choices=("wide", "json")),
        text("field", help="Only changes of this field: spec.replicas, image, metadata.labels."),
        duration("since", help="Only changes within this time: 1h, 30m."),
        switch("deleted", help="List the deleted objects of a kind."),
        switch("watch", "w", help="After printing the changes, print further ones as they happen."),
        switch("all-namespaces", "A", help="With --deleted: in all namespaces."),
    ),
    usage="(TYPE/NAME | TYPE NAME | TYPE --deleted) [flags]",
    about="""
    Show the changes of an object with their authors, the newest first. Changes of the status alone are left out, except
    for the last one; -o wide shows them. It works for objects that were deleted, too. How far the history reaches back
    depends on the server's --history-retention.
    """,
    examples="""
    # Who changed it, and what?
    setpoint history deployment/web

    # The changes of one field in the last hour
    setpoint history deployment/web --field spec.replicas --since 1h

    # What was deleted, and by whom?
    setpoint history pods --deleted
    """,
)


# -- marks -------------------------------------------------------------------------------------------------------------


async def mark(invocation: Invocation) -> None:
    flags, configmaps = invocation.flags, builtin("configmaps")
    if not invocation.args:
        await _list_marks(invocation)
        return
    if len(invocation.args) > 1:
        raise Failed("name one mark")
    name = invocation.args[0]
    if not is_mark_name(name):
        raise Failed(f"{name!r} cannot be the name of a mark: use letters, digits, - . and _, beginning with a letter")
    marks = await _marks(invocation)
    if flags.delete:
        if name not in marks:
            raise Failed(f"there is no mark {name}")
        await invocation.client.patch(configmaps, _MARKS, {"data": {name: None}}, _SYSTEM)
        invocation.print(f"mark {name} deleted")
        return
    if name not in marks and len(marks) >= MAX_MARKS:
        raise Failed(
            f"there are {len(marks)} marks already, of at most {MAX_MARKS}: `setpoint mark --delete` removes one"
        )
    moment = await revision_of(invocation, flags.at or "now")
    data = {name: str(moment.revision)}
    try:
        await invocation.client.patch(configmaps, _MARKS, {"data": data}, _SYSTEM)
    except NotFound:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _MARKS, "namespace": _SYSTEM}}
        await invocation.client.create({**made, "data": data})
    invocation.print(f"mark {name} set at revision {moment.revision}")


async def _marks(invocation: Invocation) -> dict[str, str]:
    """Return the revisions of all marks, by name."""
    try:
        found = await invocation.client.get(builtin("configmaps"), _MARKS, _SYSTEM)
    except NotFound:
        return {}
    return found.get("data") or {}


async def _list_marks(invocation: Invocation) -> None:
    marks = sorted((await _marks(invocation)).items(), key=lambda each: (len(each[1]), each[1], each[0]))
    if not marks:
        invocation.print_err("There are no marks.")
        return
    lines = ["NAME\tREV", *(f"{escaped(name)}\t{escaped(revision)}" for name, revision in marks)]
    invocation.print(align("\n".join(lines) + "\n", padding=3), end="")


MARK = Command(
    "Give the present, or another moment, a name for --at",
    mark,
    (
        text("at", help="The moment to name; by default now."),
        switch("delete", help="Remove the mark."),
    ),
    usage="[NAME] [flags]",
    about="""
    Name a revision of the cluster, so that `--at NAME` shows it. Without a name, list the marks. They are stored in the
    ConfigMap setpoint-marks in kube-system. A server that keeps history in a file (--history-retention) keeps a copy of
    the marked states too, until the mark is deleted; others can show them as long as their history reaches.
    """,
    examples="""
    # Before a change, and what has changed since
    setpoint mark before
    setpoint diff --from before
    """,
)
