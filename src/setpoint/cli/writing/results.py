"""What a command that writes has to say of each object: `deployment.apps/web created`, or the object itself."""

from __future__ import annotations

from typing import Any

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.writing.options import DryRun
from setpoint.meta.goformat import quote

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
        self._printed = 0
        if self.output not in ("", "name", "json", "yaml"):
            raise Failed(f"unable to match a printer suitable for the output format {quote(self.output)}")

    def add(self, obj: dict[str, Any], done: str) -> None:
        """One object as it is now, and what was done to it: `created`."""
        if self.output == "json":
            from setpoint.meta.gojson import indented

            self.call.say(indented(self._shown(obj)))
        elif self.output == "yaml":
            from setpoint.meta.body import dump_yaml

            if self._printed:
                self.call.say("---")
            self.call.say(dump_yaml(self._shown(obj)).decode(), end="")
        else:
            after = "" if self.output == "name" else f" {done}{self._dry.value}"
            self.call.say(name_of(obj) + after)
        self._printed += 1

    def _shown(self, obj: dict[str, Any]) -> dict[str, Any]:
        meta = obj.get("metadata") or {}
        if "managedFields" in meta and not self.call.flags.show_managed_fields:
            return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
        return obj


def name_of(obj: dict[str, Any]) -> str:
    """`deployment.apps/web`."""
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    kind = str(obj.get("kind") or "<unknown>").lower()
    name = (obj.get("metadata") or {}).get("name") or "<unknown>"
    return f"{kind}.{group}/{name}" if slash else f"{kind}/{name}"
