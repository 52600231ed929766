"""The positions of fields in YAML text."""

from __future__ import annotations

import pytest

from setpoint.meta.yaml_places import YamlProblem, documents, find_place

TEXT = """\
# a comment
apiVersion: v1
metadata:
  labels:
    app.io/x: y
spec:
  containers:
  - name: a
    args: ["x",
      "y"]
    script: |
      one
      two
  - name: b
    name: c
---
a: &x 1
b: *x
"""


def test_every_field_has_a_place() -> None:
    first, second = documents(TEXT)
    assert first.fields[("spec", "containers", 0, "args", 1)] == (10, 7, 10)
    assert first.fields[("spec", "containers", 0, "script")] == (11, 5, 13)
    assert first.fields[("spec", "containers", 1)] == (14, 5, 15)
    assert first.fields[("spec",)].last_line == 15
    assert first.repeated == [(("spec", "containers", 1, "name"), (15, 5, 15))]
    assert (second.line, second.fields[("b",)].line) == (16, 18)
    assert documents("") == []


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("spec.containers[0].name", 8),
        ("spec.containers[0].image", 8),
        (".spec.containers[7].image", 7),
        ("metadata.labels.app.io/x", 5),
        ("metadata.labels[app.io/x]", 5),
        ("status.phase", 2),
        ("", 2),
    ],
)
def test_the_place_of_a_field_that_a_message_names(field: str, line: int) -> None:
    found = find_place(documents(TEXT)[0], field)
    assert found is not None and found.line == line


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a: [\n", 2, 1), ("a:\n\tb", 2, 1), ("a: b: c", 1, 5), ("x\x00", 1, 1), ("a: 'b\n", 2, 1), ("[" * 5000, 1, 1)],
)
def test_invalid_yaml_has_a_position(text: str, line: int, column: int) -> None:
    with pytest.raises(YamlProblem) as caught:
        documents(text)
    assert caught.value.line == line and (caught.value.column == column or text.startswith("[["))
