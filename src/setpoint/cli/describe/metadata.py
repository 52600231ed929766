"""The common beginning of descriptions, and small lists beside a title."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import Writer, meta
from setpoint.kinds.cell_texts import NONE
from setpoint.meta.objects import Obj

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LONGEST_LINE = 140

Labels = Mapping[str, str] | None


def write_head(w: Writer, obj: Obj, *, namespaced: bool = True) -> None:
    """Write name, namespace, labels and annotations."""
    about = meta(obj)
    w.field("Name", about.get("name", ""))
    if namespaced:
        w.field("Namespace", about.get("namespace", ""))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))


def write_list(w: Writer, title: str, entries: Iterable[str]) -> None:
    """Write a title with the entries beside it, one per line."""
    w.write(0, f"{title}:\t")
    first = True
    for entry in entries:
        if not first:
            w.write(0, "")  # indented once more in nested output, as in kubectl
            w.write(0, "\t")
        w.write(0, f"{entry}\n")
        first = False
    if first:
        w.line(NONE)


def write_labels(w: Writer, title: str, labels: Labels) -> None:
    labels = labels or {}
    write_list(w, title, (f"{key}={labels[key]}" for key in sorted(labels)))


def write_indented_labels(w: Writer, indent: str, title: str, labels: Labels) -> None:
    w.write(0, f"{indent}{title}:\t")
    if not labels:
        w.line(NONE)
        return
    for at, key in enumerate(sorted(labels)):
        if at:
            w.write(0, f"{indent}\t")
        w.write(0, f"{key}={labels[key]}\n")


def write_annotations(w: Writer, title: str, annotations: Labels) -> None:
    """Write annotations; a value that does not fit in the line is written below its key and truncated. The last-applied
    configuration is left out."""
    annotations = annotations or {}
    w.write(0, f"{title}:\t")
    keys = sorted(key for key in annotations if key != LAST_APPLIED)
    if not keys:
        w.line(NONE)
        return
    for at, key in enumerate(keys):
        if at:
            w.write(0, "\t")
        value = annotations[key].removesuffix("\n")
        if _size(value) + _size(key) + 2 > LONGEST_LINE or "\n" in value:
            w.write(0, f"{key}:\n")
            for line in value.split("\n"):
                w.write(0, f"\t  {shortened(line, LONGEST_LINE - 2)}\n")
        else:
            w.write(0, f"{key}: {value}\n")


def shortened(text: str, size: int) -> str:
    """Truncate a text to `size` bytes without splitting a character."""
    data = text.encode()
    return data[:size].decode(errors="ignore") + "..." if len(data) > size else text


def _size(text: str) -> int:
    return len(text.encode())


def write_tolerations(w: Writer, title: str, tolerations: Sequence[Mapping[str, Any]] | None) -> None:
    ordered = sorted(tolerations or (), key=lambda each: str(each.get("key", "")))
    write_list(w, title, map(_toleration, ordered))


def _toleration(toleration: Mapping[str, Any]) -> str:
    key, value, effect = (toleration.get(part, "") for part in ("key", "value", "effect"))
    text = f"{key}={value}" if value else key
    if effect:
        text += f":{effect}"
    if toleration.get("operator") == "Exists" and not value:
        text += " op=Exists" if key or effect else "op=Exists"
    if toleration.get("tolerationSeconds") is not None:
        text += f" for {toleration['tolerationSeconds']}s"
    return str(text)


def write_taints(w: Writer, taints: Sequence[Mapping[str, Any]] | None) -> None:
    ordered = sorted(taints or (), key=lambda each: f"{each.get('effect', '')},{each.get('key', '')}")
    write_list(w, "Taints", map(_taint, ordered))


def _taint(taint: Mapping[str, Any]) -> str:
    key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
    if not effect:
        return f"{key}={value}:" if value else str(key)
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def controller(obj: Obj) -> Mapping[str, Any] | None:
    """Return the reference to the controlling owner; None if there is none."""
    for reference in meta(obj).get("ownerReferences") or ():
        if reference.get("controller"):
            found: Mapping[str, Any] = reference
            return found
    return None


def write_controller(w: Writer, obj: Obj) -> None:
    found = controller(obj)
    if found is not None:
        w.field("Controlled By", f"{found.get('kind', '')}/{found.get('name', '')}")


def truth(value: bool | None) -> str:
    if value is None:
        return "<unset>"
    return "True" if value else "False"
