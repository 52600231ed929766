"""Where a cursor is in YAML that is being typed."""

from __future__ import annotations

import pytest

from setpoint.view.yaml_cursor import cursor_at

TEXT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: x
spec:
  template:
    spec:
      containers:
      - name: a
        ports:
        - containerPort: 80
          na
        args: |
          foo: bar
        im
      - name: b

  re
---
kind: Pod
spec:
    containers:
        -
"""
CONTAINERS = ("spec", "template", "spec", "containers")


@pytest.mark.parametrize(
    ("line", "kind", "outer", "name", "taken"),
    [
        (1, "Deployment", (), "apiVersion", {"kind", "metadata", "spec"}),
        (4, "Deployment", ("metadata",), "name", set[str]()),
        (5, "Deployment", (), "spec", {"apiVersion", "kind", "metadata"}),
        (9, "Deployment", (*CONTAINERS, 0), "name", {"ports", "args"}),
        (12, "Deployment", (*CONTAINERS, 0, "ports", 0), "na", {"containerPort"}),
        (15, "Deployment", (*CONTAINERS, 0), "im", {"name", "ports", "args"}),
        (16, "Deployment", (*CONTAINERS, 1), "name", set[str]()),
        (18, "Deployment", ("spec",), "re", {"template"}),
        (23, "Pod", ("spec", "containers", 0), "", set[str]()),
    ],
)
def test_the_field_at_the_end_of_a_line(
    line: int, kind: str, outer: tuple[str | int, ...], name: str, taken: set[str]
) -> None:
    found = cursor_at(TEXT, line, len(TEXT.split("\n")[line - 1]) + 1)
    assert (found.kind, found.outer, found.name, set(found.taken)) == (kind, outer, name, taken)


def test_values_and_columns() -> None:
    found = cursor_at("kind: Pod\nspec:\n  restartPolicy: Alw", 3, 21)
    assert (found.outer, found.name, found.in_value, found.value) == (("spec",), "restartPolicy", True, "Alw")
    assert cursor_at("kind: Pod\nspec:\n  re", 3, 4).name == "r"
    assert cursor_at("", 1, 1).outer == () and cursor_at("x", 99, 99).name == "x"
    assert cursor_at("kind: 'Pod'\n", 2, 1).kind == "Pod"
