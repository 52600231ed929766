"""What a command that writes has to say of each object: `deployment.apps/web created`, or the object itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.cli.call import Call
from setpoint.cli.output import output_flags
from setpoint.cli.printing import Printer, make_printer
from setpoint.cli.printing.documents import without_managed_fields
from setpoint.cli.resources.target import Target
from setpoint.cli.writing.options import DryRun
from setpoint.cli.writing.typed import typed as as_typed


class Results:
    """Made before anything is written, so that a bad `-o` changes nothing. Raises PrintProblem."""

    def __init__(self, call: Call, dry: DryRun = DryRun.NONE, *, apart: bool = False) -> None:
        """Apart: nothing stands between one object and the next, as if each were the only one."""
        self._call = call
        self._apart = apart
        self._flags = output_flags(call)
        self._dry = dry
        self._printer: Printer = make_printer(self._flags)

    @property
    def asked(self) -> bool:
        """Whether there is a word on how to print."""
        return bool(self._flags.template or self._flags.output)

    @property
    def whole(self) -> bool:
        """Whether objects are printed, not a line for each."""
        return bool(self._flags.template) or self._flags.output not in ("", "name")

    def add(self, obj: dict[str, Any], done: str, *, typed: bool = False) -> None:
        """One object as it is now, and what was done to it: `created`. Typed: it is printed as kubectl prints what it
        made by itself, or read as a kind that it knows."""
        if typed and self.whole:
            obj = as_typed(obj)
        if typed and self._flags.output == "json":
            self._say_in_order(obj)
            return
        printer = self._printer
        if self._apart or not self.whole:
            printer = make_printer(self._flags, f"{done}{self._dry.value}")
        self._call.say(printer.print(obj), end="")

    def line(self, obj: dict[str, Any], done: str) -> None:
        """As `add`, for a command that prints whole objects all together by `all`."""
        if not self.whole:
            self.add(obj, done)

    def all(self, targets: Sequence[Target]) -> None:
        """Whole objects, several of them as one list."""
        objects = [target.obj or {} for target in targets]
        if self.whole and objects:
            # A list of its own has its fields in their order; its objects have theirs in that of their names.
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
        self._call.say(indented(shown, ordered=False))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
