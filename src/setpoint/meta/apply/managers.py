"""`managedFields`: the owners of fields as a list of entries on the object, and conflicts between owners."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from setpoint.meta.apply.field_set import BadFieldSet, FieldSet, contains, parse, path_text, paths, shared, union
from setpoint.meta.errors import Conflict, PlainServerError
from setpoint.meta.goformat import quote

MAX_UPDATE_MANAGERS = 10
_OLD_UPDATES = "ancient-changes"

Entry = dict[str, Any]


class ManagerId(NamedTuple):
    manager: str
    operation: str
    api_version: str
    """Version of the manager; empty for appliers, which stay the same manager in every version."""
    subresource: str

    def json(self) -> str:
        """Return the text by which managers are sorted."""
        parts = [("manager", self.manager), ("operation", self.operation)]
        parts += [("apiVersion", self.api_version), ("subresource", self.subresource)]
        return orjson.dumps({name: value for name, value in parts if value}).decode()

    def shown(self) -> str:
        """Return the manager as conflict messages show it."""
        text = quote(self.manager)
        if self.subresource:
            text += f" with subresource {quote(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


Managers = dict[ManagerId, Entry]


class BadManagedFields(ValueError):
    """A managedFields list is invalid; the message is admission's warning."""


def id_of(entry: Entry) -> ManagerId:
    operation = entry["operation"]
    return ManagerId(
        entry.get("manager", ""),
        operation,
        entry["apiVersion"] if operation == "Update" else "",
        entry.get("subresource", ""),
    )


def make_entry(
    who: ManagerId, api_version: str, fields: FieldSet, time: str | None, *, is_shared: bool = False
) -> Entry:
    """Return an entry with its members in the order in which they are written. `is_shared`: the set is the one of a
    stored entry."""
    entry: Entry = {}
    if who.manager:
        entry["manager"] = who.manager
    entry["operation"] = who.operation
    entry["apiVersion"] = api_version
    if time is not None:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields if is_shared else shared(fields)
    if who.subresource:
        entry["subresource"] = who.subresource
    return entry


def with_fields(entry: Entry, fields: FieldSet) -> Entry:
    return {**entry, "fieldsV1": shared(fields)}


def trusted(entries: list[Entry] | None) -> Managers:
    """Return the managers of a stored object without validating them: they were written by `encode`."""
    return {id_of(entry): entry for entry in entries} if entries else {}


def decode(entries: Any) -> Managers:
    """Return the managers from a list that a client sent. Raises BadManagedFields."""
    managers: Managers = {}
    for index, entry in enumerate(entries or ()):
        if entry.get("operation") not in ("Apply", "Update"):
            raise BadManagedFields("operation must be `Apply` or `Update`")
        if not entry.get("apiVersion"):
            raise BadManagedFields("apiVersion must not be empty")
        fields_type = entry.get("fieldsType", "")
        if not fields_type:
            raise BadManagedFields(f"missing fieldsType in managed fields entry {index}")
        if fields_type != "FieldsV1":
            raise BadManagedFields(f"invalid fieldsType {quote(fields_type)} in managed fields entry {index}")
        try:
            fields = parse(entry.get("fieldsV1"))
        except BadFieldSet as error:
            raise BadManagedFields(f"error decoding versioned set from managed fields entry {index}: {error}") from None
        who = id_of(entry)
        managers[who] = make_entry(who, entry["apiVersion"], fields, entry.get("time"))
    return managers


def is_reset(entries: Any) -> bool:
    """Return whether the client requests to remove all ownership, by an empty list or one empty entry."""
    if type(entries) is not list or len(entries) > 1:
        return False
    return not entries or not any(value or name == "fieldsV1" for name, value in entries[0].items())


def encode(managers: Managers) -> list[Entry]:
    """Return the entries in their order on the wire."""
    entries = list(managers.values())
    if len(entries) > 1:
        entries.sort(key=_wire_order)
    return entries


def _wire_order(entry: Entry) -> tuple[str, str, str, str, str]:
    return (
        entry["operation"],
        entry.get("time") or "",
        entry.get("manager", ""),
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def cap_updates(managers: Managers) -> None:
    """Limit update managers to ten, in place: the oldest are merged into one per version."""
    updaters = [who for who in managers if who.operation == "Update"]
    excess = len(updaters) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return
    updaters.sort(key=lambda who: (managers[who].get("time") or "", who.json()))
    first_of_version: dict[str, ManagerId] = {}
    for who in updaters:
        if excess <= 0:
            return
        entry = managers[who]
        version = entry["apiVersion"]
        first = first_of_version.get(version)
        if first is None:
            first_of_version[version] = who
            continue
        bucket = ManagerId(_OLD_UPDATES, "Update", version, "")
        fields = entry["fieldsV1"]
        if bucket in managers:
            fields = union(fields, managers[bucket]["fieldsV1"])
        else:
            fields = union(fields, managers.pop(first)["fieldsV1"])
        # This is the newest of the merged entries, so its time is used.
        managers.pop(who, None)
        managers[bucket] = make_entry(bucket, version, fields, entry.get("time"))
        excess -= 1


class TypeMismatch(PlainServerError):
    """The configuration does not fit the type of its kind: 500 without a reason, as the reference answers."""


class Conflicts(Exception):
    """Fields that other managers own and that the configuration sets to other values."""

    def __init__(self, by_manager: dict[ManagerId, FieldSet]) -> None:
        super().__init__("conflicts")
        self.found = [(who, path) for who in sorted(by_manager, key=ManagerId.json) for path in paths(by_manager[who])]

    def beyond(self, allowed: FieldSet) -> list[tuple[ManagerId, tuple[str, ...]]]:
        return [(who, path) for who, path in self.found if not contains(allowed, path)]


def conflict_error(found: list[tuple[ManagerId, tuple[str, ...]]]) -> Conflict:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {who.shown()}",
            "field": path_text(path),
        }
        for who, path in found
    ]
    if len(found) == 1:
        who, path = found[0]
        return Conflict.apply(causes, f"Apply failed with 1 conflict: conflict with {who.shown()}: {path_text(path)}")
    lines: list[str] = []
    last: ManagerId | None = None
    for who, path in found:
        if who != last:
            lines.append(f"conflicts with {who.shown()}:")
            last = who
        lines.append(f"- {path_text(path)}")
    return Conflict.apply(causes, f"Apply failed with {len(found)} conflicts: " + "\n".join(lines))
