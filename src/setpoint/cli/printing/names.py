"""Print names and operations: `pod/web`, and `pod/web created`."""

from __future__ import annotations

from setpoint.cli.printing.interface import Obj, Printable, PrintProblem, WatchEvent, list_items

DRY_RUN = {"none": "%s", "client": "%s (dry run)", "server": "%s (server dry run)"}
"""The format of a success line by the value of `--dry-run`."""


def qualified_name(obj: Obj) -> str:
    """Return `pod/web` or `deployment.apps/web`."""
    kind = obj.get("kind") or ""
    if not kind or not obj.get("apiVersion"):
        raise PrintProblem("missing apiVersion or kind; try GetObjectKind().SetGroupVersionKind() if you know the type")
    group = obj["apiVersion"].rpartition("/")[0]
    name = (obj.get("metadata") or {}).get("name") or "<unknown>"
    return f"{kind.lower()}.{group}/{name}" if group else f"{kind.lower()}/{name}"


class NamePrinter:
    """Prints a line for each object with its name and the operation, if any."""

    def __init__(self, operation: str = "") -> None:
        self._ending = f" {operation}\n" if operation else "\n"

    def print(self, obj: Printable) -> str:
        if isinstance(obj, WatchEvent):
            obj = obj.object
        items = list_items(obj)
        if items is not None:
            return "".join(map(self.print, items))
        return qualified_name(obj) + self._ending

    def flush(self) -> str:
        return ""
