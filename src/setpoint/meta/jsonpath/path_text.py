"""Nodes as template text, to name a part of a path in messages."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.meta.goformat import plain, quote
from setpoint.meta.jsonpath.nodes import Descent, Field, Filter, Identifier, Literal, Node, Slice, Steps, Text, Union


def path_text(nodes: Iterable[Node]) -> str:
    """Return the path as text: `.spec.containers[0].name`."""
    return "".join(map(_node, nodes))


def _node(node: Node) -> str:
    match node:
        case Field(name):
            return "." + name.replace(".", "\\.")
        case Slice(start, end, step, single):
            if single:
                return f"[{start or 0}]"
            parts = ["" if part is None else str(part) for part in (start, end, step)]
            return "[*]" if not any(parts) else "[" + ":".join(parts if parts[2] else parts[:2]) + "]"
        case Filter(left, operator, right):
            if operator == "exists":
                return f"[?(@{path_text(left.nodes)})]"
            return f"[?({_side(left)}{operator}{_side(right)})]"
        case Union(members):
            return "[" + ",".join(path_text(member.nodes).strip("[]") for member in members) + "]"
        case Descent():
            return "."
        case Identifier(name):
            return f"{name} "
        case Text(text):
            return quote(text)
        case Literal(value):
            return plain(value)
        case Steps(inner):
            return path_text(inner)
    return ".*"


def _side(steps: Steps) -> str:
    literal = len(steps.nodes) == 1 and isinstance(steps.nodes[0], Text | Literal)
    return path_text(steps.nodes) if literal else "@" + path_text(steps.nodes)
