"""The output of commands that write: `deployment.apps/web created`, or the object itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.cli.invocation import Invocation
from setpoint.cli.output import output_flags
from setpoint.cli.printing import Printer, make_printer
from setpoint.cli.printing.documents import without_managed_fields
from setpoint.cli.resources.target import Target
from setpoint.cli.writing.options import DryRun
from setpoint.cli.writing.typed import typed as as_typed


class Results:
    """Prints results. It is created before anything is written, so that an invalid `-o` changes nothing. Raise
    PrintProblem."""

    def __init__(self, call: Invocation, dry: DryRun = DryRun.NONE, *, apart: bool = False) -> None:
        """Create the printer; with `apart`, objects are printed without separators, as if each were the only one."""
        self._call = call
        self._apart = apart
        self._flags = output_flags(call)
        self._dry = dry
        self._printer: Printer = make_printer(self._flags)

    @property
    def asked(self) -> bool:
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
            self._say_in_order(obj)
            return
        printer = self._printer
        if self._apart or not self.whole:
            printer = make_printer(self._flags, f"{done}{self._dry.value}")
        self._call.print(printer.print(obj), end="")

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
                self._say_in_order(several)
            else:
                self.add(several, "")

    def _say_in_order(self, obj: dict[str, Any]) -> None:
        from setpoint.meta.gojson import indented

        shown = obj if self._flags.show_managed_fields else without_managed_fields(obj)
        self._call.print(indented(shown, ordered=False))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
