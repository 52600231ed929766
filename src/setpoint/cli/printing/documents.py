"""Objects as JSON and YAML documents."""

from __future__ import annotations

from setpoint.cli.printing.interface import Obj, Printable, PrintProblem, WatchEvent, as_document, list_items


class JsonPrinter:
    def __init__(self, show_managed_fields: bool = False) -> None:
        self._all = show_managed_fields

    def print(self, obj: Printable) -> str:
        from setpoint.meta.gojson import compact, indented

        if isinstance(obj, WatchEvent):
            return f'{{"type":{compact(obj.type)},"object":{compact(obj.object)}}}\n'
        return indented(_prepared(obj, self._all)) + "\n"

    def flush(self) -> str:
        return ""


class YamlPrinter:
    """Prints YAML documents, separated by lines of dashes."""

    def __init__(self, show_managed_fields: bool = False) -> None:
        self._all = show_managed_fields
        self._count = 0

    def print(self, obj: Printable) -> str:
        from setpoint.meta.gojson import go_round_trip
        from setpoint.meta.yaml_write import write

        document = as_document(obj) if isinstance(obj, WatchEvent) else _prepared(obj, self._all)
        self._count += 1
        return "---\n" * (self._count > 1) + write(go_round_trip(document, unsigned=True)).decode()

    def flush(self) -> str:
        return ""


class KyamlPrinter:
    def __init__(self, show_managed_fields: bool = False) -> None:
        self._all = show_managed_fields

    def print(self, obj: Printable) -> str:
        from setpoint.cli.printing.kyaml import write

        return write(as_document(obj) if isinstance(obj, WatchEvent) else _prepared(obj, self._all))

    def flush(self) -> str:
        return ""


def _prepared(obj: Obj, show_managed_fields: bool) -> Obj:
    if not obj.get("kind") or not obj.get("apiVersion"):
        raise PrintProblem("missing apiVersion or kind; try GetObjectKind().SetGroupVersionKind() if you know the type")
    return obj if show_managed_fields else without_managed_fields(obj)


def without_managed_fields(obj: Obj) -> Obj:
    """Return the object, or the objects of a list, without managed fields."""
    items = list_items(obj)
    if items is not None:
        return {**obj, "items": list(map(without_managed_fields, items))}
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
