"""The strategy of a kind: the interface between `kinds` and the API server's registry.

The registry calls, for a create: `decode` (types, unknown fields) -> `default` -> admission -> `prepare_for_create` ->
`validate` -> `warnings_on_create` -> store. For an update: decode -> default -> admission -> `prepare_for_update` ->
`validate_update` -> `warnings_on_update` -> store. A subresource that writes (`status`, `resize`, ...) is a Strategy of
its own in `subresources`; it shares the type and replaces the update hooks.

A strategy may rely on these guarantees:
- the object has passed its type check: values have the right JSON type, empty OMIT fields are absent, ALWAYS fields are
  present, quantities are canonical, times are UTC;
- `obj` may be changed in `default` and `prepare_*` only; `old` never: it is shared with every reader;
- metadata has been filled by the registry (name, namespace, uid, creationTimestamp, generation) before `prepare_*`;
- the registry itself validates object metadata by `validate_name`, and that metadata's immutable fields do not change.

Strategies are stateless and do no I/O. Everything that needs other objects (IP allocation, quota) is in the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.meta.field import Errors
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type


@dataclass(frozen=True, slots=True)
class UserInfo:
    name: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Context(NamedTuple):
    """The parts of a request that a hook may use."""

    now: datetime
    user: UserInfo = UserInfo()
    namespace: str = ""
    subresource: str = ""
    dry_run: bool = False
    warn: Callable[[str], None] = lambda text: None
    """Callback for warnings about input that validation accepts."""
    from_file: bool = False
    """Whether the object comes from a static file of the administrator, without a request."""
    emptied: Sequence[tuple[Obj, str]] = ()
    """Fields, as pairs of object and name, for which the client sent an empty list that decoding made null."""

    def was_empty(self, part: Obj, name: str) -> bool:
        """Return whether the client sent an empty list for this field, rather than omitting it."""
        return any(where is part and field == name for where, field in self.emptied)


class Column(NamedTuple):
    """A table column; `cell` gets the object and the current time.

    A column without a name adds a cell to rows that the table's column definitions do not list."""

    name: str
    cell: Callable[[Obj, datetime], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Strategy:
    """A strategy without rules of its own. Kinds subclass it and override methods."""

    type: Type
    """Type of the kind; set by the catalog when the strategy is loaded."""

    allow_create_on_update = False
    """Whether PUT creates an object that does not exist."""
    allow_unconditional_update = True
    """Whether PUT without resourceVersion overwrites."""
    orphans_by_default = False
    """Whether DELETE without a propagation policy orphans the dependents (Job, ReplicationController)."""
    collects_garbage = True
    """Whether dependents are garbage-collected; if False, propagation policies have no effect (Namespaces, Events)."""
    has_status = False
    """Whether there is a `/status` subresource: main writes retain the stored status, status writes the stored spec."""
    has_generation = False
    """Whether metadata.generation starts at 1 and is incremented whenever `spec_fields` change."""
    spec_fields: tuple[str, ...] = ("spec",)
    """Top-level fields whose changes increment the generation."""

    @property
    def resets(self) -> tuple[str, ...]:
        """Return the dotted paths that a write through this endpoint resets; the client does not become their owner."""
        return ("status",) if self.has_status else ()

    subresources: Mapping[str, Strategy] = {}
    """Subresources that read and write the same object by other rules."""
    columns: Sequence[Column] = ()
    """All table columns, Name first; empty means Name and Created At."""
    hidden_annotations: frozenset[str] = frozenset()
    """Annotations that represent fields of upstream's internal type: hidden in tables and metadata-only responses."""
    qualified_finalizers = True
    """Whether finalizers must have a domain, except for the standard ones."""
    generates_names = True
    """Whether generateName gets a random suffix; if False it is used as the name."""
    returns_deleted = False
    """Whether DELETE returns the removed object instead of a Status."""
    field_labels: frozenset[str] = frozenset({"metadata.name", "metadata.namespace"})
    """Field selectors that clients may use; others are rejected."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        """Return the errors of a name; `prefix` marks a generateName. By default a DNS-1123 subdomain is required."""
        return dns1123_subdomain(name.rstrip("-") if prefix else name)

    def default(self, obj: Obj) -> None:
        """Set the defaults of absent fields, in place."""

    def stamp(self, obj: Obj, now: datetime) -> None:
        """Set defaults that are the time of the request; called right after `default`, with the same ownership."""

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        """Drop or reset fields that a client must not set on create."""
        self.reset_status(obj)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        """Append all errors of the object to `errs`."""

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return []

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        """Copy the fields that this write must not change from `old`."""
        self.retain_status(obj, old)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        """Validate an update. By default the rules of a create apply."""
        self.validate(obj, errs, ctx)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return self.warnings_on_create(obj, ctx)

    def is_new_generation(self, obj: Obj, old: Obj) -> bool:
        """Return whether an update increments the generation, for kinds with `has_generation`."""
        return any(obj.get(name) != old.get(name) for name in self.spec_fields)

    def warnings_on_delete(self, policy_given: bool) -> list[str]:
        """Return the warnings of a delete; `policy_given` says whether the client chose a propagation policy."""
        return []

    def undeletable(self, name: str) -> str:
        """Return why the object of this name cannot be deleted; empty if it can."""
        return ""

    def grace_period(self, obj: Obj, requested: int | None) -> int | None:
        """Return the seconds between a delete and the removal; None: this kind is removed at once, without a grace
        period."""
        return None

    def removable(self, obj: Obj) -> bool:
        """Return whether a deleted object without finalizers may be removed; Namespaces have finalizers in their spec
        too."""
        return True

    def begin_deletion(self, obj: Obj, now: str) -> bool:
        """Mark a deletion for kinds that do so in their own way, and return whether `obj` was marked now.

        Metadata and the top level of `obj` may be modified; the rest is shared."""
        return False

    def mark_deleted(self, obj: Obj) -> None:
        """Adjust an object that was marked for deletion and stays for now.

        Metadata and the top level of `obj` may be modified; the rest is shared."""

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        """Return the values of `field_labels` beyond name and namespace."""
        return {}

    def columns_of(self, objs: Sequence[Obj]) -> Sequence[Column]:
        """Return the columns of a list of these objects, for kinds where one object's cells depend on the others."""
        return self.columns

    def sorted_for_table(self, objs: Sequence[Obj]) -> Sequence[Obj]:
        """Return the order in which a table of several objects lists them; by default as they come."""
        return objs

    def writes_after_create(self, obj: Obj) -> bool:
        """Return whether the first write after creation takes a revision even if it changes nothing.

        Upstream stores such an object without a field that every read fills in."""
        return False

    def unsupported_field(self, label: str) -> str | None:
        """Return the error message for an unsupported field selector, or None for the usual one."""
        return None

    def row_conditions(self, obj: Obj) -> list[dict[str, str]]:
        """Return the conditions of a table row (of a Pod that has completed)."""
        return []

    # -- for subclasses -------------------------------------------------------------------------------------------

    def reset_status(self, obj: Obj) -> None:
        """Give the object the empty status of its type."""
        if self.has_status:
            from setpoint.meta.decode import zero  # Imported here to avoid an import cycle.

            obj["status"] = zero(self.type.fields["status"].type)

    def retain_status(self, obj: Obj, old: Obj) -> None:
        if self.has_status:
            _copy_field(obj, old, "status")


class StatusStrategy(Strategy):
    """The usual `/status`: everything but status (and metadata) stays as stored."""

    reset_fields: tuple[str, ...] = ("spec",)
    """Top-level fields that a status write does not change."""

    def __init__(self, main: Strategy) -> None:
        self.main = main

    @property
    def resets(self) -> tuple[str, ...]:
        return self.reset_fields

    def default(self, obj: Obj) -> None:
        self.main.default(obj)

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return self.main.validate_name(name, prefix)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        for name in self.reset_fields:
            _copy_field(obj, old, name)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        """Accept every update; subclasses validate the status."""

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return self.main.selectable_fields(obj)


def _copy_field(obj: Obj, old: Obj, name: str) -> None:
    """Set `obj[name]` as in `old`. The value is shared and must not be modified afterwards."""
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)


_RETAINED_METADATA = (
    "deletionTimestamp",
    "generation",
    "selfLink",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)


def retain_metadata(obj: Obj, old: Obj) -> None:
    """Restore metadata from `old`, except for the fields that the server sets for this write."""
    meta, old_meta = obj["metadata"], old["metadata"]
    for name in _RETAINED_METADATA:
        if name in old_meta:
            meta[name] = old_meta[name]
        else:
            meta.pop(name, None)


class BareStatusStrategy(StatusStrategy):
    """A `/status` that changes nothing but the status."""

    @property
    def resets(self) -> tuple[str, ...]:
        return (*self.reset_fields, "metadata")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        retain_metadata(obj, old)
