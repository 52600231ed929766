"""The output of commands that write: `deployment.apps/web created`, or the object itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.output import output_flags
from setpoint.cli.printing import Printer, make_printer
from setpoint.cli.resources import Target
from setpoint.cli.writing.options import DryRun
from setpoint.meta.objects import Obj

_WITH_METADATA = ((), ("spec", "template"), ("spec", "jobTemplate"), ("spec", "jobTemplate", "spec", "template"))


def as_typed(obj: Obj) -> Obj:
    """Return the object in typed form; objects of other kinds keep their order."""
    obj = _in_order(obj)
    if "items" in obj:
        return {**obj, "items": obj["items"] or None}
    for path in _WITH_METADATA:
        obj = _with_time(obj, path)
    return obj


def _in_order(obj: Obj) -> Obj:
    # Imported here because it is only needed to print whole objects.
    from setpoint.kinds.tables import definition_for, type_of
    from setpoint.meta.decode import DecodeError, decode

    group, _, version = obj["apiVersion"].rpartition("/")
    try:
        found: Obj = decode(type_of(definition_for(group, version, obj["kind"])), obj)
    except (KeyError, DecodeError):
        return obj
    head = {key: obj[key] for key in ("kind", "apiVersion")}
    return head | {key: value for key, value in found.items() if key not in head}


def _with_time(obj: Obj, path: tuple[str, ...]) -> Obj:
    if not path:
        meta = obj.get("metadata") or {}
        first = {key: meta[key] for key in ("name", "namespace") if key in meta}
        return obj if "creationTimestamp" in meta else {**obj, "metadata": {**first, "creationTimestamp": None, **meta}}
    inner = obj.get(path[0])
    if not isinstance(inner, dict):
        return obj
    return {**obj, path[0]: _with_time(inner, path[1:])}


class Results:
    """Prints results. It is created before anything is written, so that an invalid `-o` changes nothing. Raise
    PrintProblem."""

    def __init__(self, invocation: Invocation, dry: DryRun = DryRun.NONE, *, apart: bool = False) -> None:
        """Create the printer; with `apart`, objects are printed without separators, as if each were the only one."""
        self._invocation = invocation
        self._apart = apart
        self._flags = output_flags(invocation)
        self._dry = dry
        self._printer: Printer = make_printer(self._flags)

    @property
    def has_format(self) -> bool:
        """Whether an output format was requested."""
        return bool(self._flags.template or self._flags.output)

    @property
    def whole(self) -> bool:
        """Whether whole objects are printed, not one line each."""
        return bool(self._flags.template) or self._flags.output not in ("", "name")

    def add(self, obj: dict[str, Any], done: str, *, typed: bool = False) -> None:
        """Print an object and what was done to it, such as `created`.

        With `typed`, it is printed as kubectl prints an object that it generated or decoded as a known kind.
        """
        if typed and self.whole:
            obj = as_typed(obj)
        if typed and self._flags.output == "json":
            self._print_in_order(obj)
            return
        printer = self._printer
        if self._apart or not self.whole:
            printer = make_printer(self._flags, f"{done}{self._dry.value}")
        self._invocation.print(printer.print(obj), end="")

    def line(self, obj: dict[str, Any], done: str) -> None:
        """Do the same as `add`, for a command that prints whole objects together with `all`."""
        if not self.whole:
            self.add(obj, done)

    def all(self, targets: Sequence[Target]) -> None:
        """Print whole objects, several of them as one list."""
        objects = [target.obj or {} for target in targets]
        if self.whole and objects:
            # The list itself has its fields in declared order, and its objects have theirs sorted by name.
            several = {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [_sorted(obj) for obj in objects]}
            if len(objects) == 1:
                self.add(objects[0], "")
            elif self._flags.output == "json":
                self._print_in_order(several)
            else:
                self.add(several, "")

    def _print_in_order(self, obj: dict[str, Any]) -> None:
        # Imported here because they are only needed to print whole objects.
        from setpoint.cli.printing.documents import without_managed_fields
        from setpoint.meta.gojson import indented

        shown = obj if self._flags.show_managed_fields else without_managed_fields(obj)
        self._invocation.print(indented(shown, ordered=False))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_KINDS = ("json", "merge", "strategic")


def overriding(default: str) -> tuple[Any, ...]:
    return (
        text("overrides", help="A patch to the object that is made, as JSON."),
        text("override-type", default=default, help=f"What kind of patch it is: {', '.join(_KINDS)}.", choices=_KINDS),
    )


def overridden(invocation: Invocation, obj: Obj) -> Obj:
    """Return the patched object. Raise Failed."""
    given = invocation.flags.overrides
    if not given:
        return obj
    kind = invocation.flags.override_type or "merge"
    if kind not in _KINDS:
        raise Failed(f"invalid override type: {kind}")
    # Imported here because overrides are rare.
    from setpoint.meta.body import BodyError, parse_json
    from setpoint.meta.patch.errors import PatchError

    try:
        patch, _ = parse_json(given.encode("utf-8", "surrogateescape"))
        return as_typed(_patched(kind, obj, patch))
    except (BodyError, PatchError) as error:
        raise Failed(str(error)) from None


def _patched(kind: str, obj: Obj, patch: Any) -> Obj:
    # Imported here because overrides are rare.
    from setpoint.kinds.tables import definition_for, type_of
    from setpoint.meta.patch.json_patch import apply_json_patch
    from setpoint.meta.patch.merge_patch import apply_merge_patch
    from setpoint.meta.patch.strategic import apply_strategic

    if kind == "json":
        found = apply_json_patch(obj, patch)
    elif kind == "merge":
        found = apply_merge_patch(obj, patch)
    else:
        group, _, version = obj["apiVersion"].rpartition("/")
        found = apply_strategic(type_of(definition_for(group, version, obj["kind"])), obj, patch)
    if not isinstance(found, dict):
        raise Failed("what is left of the object is none")
    return found
