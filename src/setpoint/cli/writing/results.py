"""What a command that writes has to say of each object: `deployment.apps/web created`, or the object itself."""

from __future__ import annotations

from typing import Any

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.printing import OutputFlags, Printer, PrintProblem, make_printer, qualified_name
from setpoint.cli.writing.options import DryRun

OUTPUT = (
    text("output", "o", help="Output format. One of: (json, yaml, name, go-template, jsonpath, ...)."),
    text("template", help="Template string or path to template file to use when -o=go-template, -o=go-template-file."),
    switch("allow-missing-template-keys", default=True, help="Ignore errors in templates when a field is missing."),
    switch("show-managed-fields", help="Keep the managedFields when printing objects in JSON or YAML format."),
)


class Results:
    """Made before anything is written, so that a bad `-o` changes nothing. Raises Failed."""

    def __init__(self, call: Call, dry: DryRun = DryRun.NONE) -> None:
        self.call = call
        self.output: str = getattr(call.flags, "output", "")
        self._dry = dry
        self._printer = self._made()

    def add(self, obj: dict[str, Any], done: str, *, typed: bool = False) -> None:
        """One object as it is now, and what was done to it: `created`. Typed: its fields stay in their order."""
        if not self._printer:
            after = "" if self.output == "name" else f" {done}{self._dry.value}"
            self.call.say(qualified_name(obj) + after)
        elif typed and self.output == "json":
            from setpoint.meta.gojson import indented

            self.call.say(indented(self._shown(obj), ordered=False))
        else:
            try:
                self.call.say(self._printer.print(obj), end="")
            except PrintProblem as problem:
                self.call.say(problem.output, end="")
                raise Failed(str(problem)) from None

    def _made(self) -> Printer | None:
        """None: a line for each object."""
        flags = self.call.flags
        if self.output in ("", "name") and not getattr(flags, "template", ""):
            return None
        try:
            return make_printer(
                OutputFlags(self.output, flags.template, flags.allow_missing_template_keys, flags.show_managed_fields)
            )
        except PrintProblem as problem:
            raise Failed(str(problem)) from None

    def _shown(self, obj: dict[str, Any]) -> dict[str, Any]:
        meta = obj.get("metadata") or {}
        if "managedFields" in meta and not self.call.flags.show_managed_fields:
            return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
        return obj
