"""YAML is the same whether it is written directly or by libyaml."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from setpoint.meta import yaml_events, yaml_write

TEXTS = """
a|web|it's|"quoted"|- a|-|-a|---|--- a|...|?|? a|?a|:|: a|:a|a:|a: b|a:b|#|# a|a #b|a#b|,a|[a|]a|{a|}a|&a|*a|!a|>a|%a|@a|`a|a,b
true|no|yes|off|y|null|~|=|<<|123|0x1f|0o14|01|1_000|1e3|.5|+1|-1|1:30|190:20:30|.inf|2001-01-01|2001-12-14 21:59:43|1.2.3
é|漢字|\u2027|\u2028|\x85|\xa0|\ufeff|\ufffd|\uffff|😀|\t|a\tb|\r|\x00|\x7f| a|a |  |a  b
"""
LINES = [
    "\n",
    "a\n",
    "a\nb",
    "a\nb\n",
    "a\n\n",
    "a\n\nb\n",
    "\na",
    "a\n b",
    " a\nb",
    "a \nb",
    "a\nb ",
    "a\r\nb",
    "é\nb",
]
WORDS = ["", *(word for line in TEXTS.strip().split("\n") for word in line.split("|")), "|", "|a", *LINES]


@pytest.mark.parametrize("text", WORDS, ids=repr)
def test_every_text_as_a_key_and_a_value(text: str) -> None:
    for value in ({"k": text}, {text: "v"}, [text], [[text]], {"k": {text: [text, {"a": text}]}}):
        assert yaml_write.write(value) == yaml_events.emit(value)


@pytest.mark.parametrize("separator", [" ", "  ", "' ", ": ", " #"])
@pytest.mark.parametrize("indent", [0, 3, 30])
def test_long_texts_are_continued_at_the_same_places(separator: str, indent: int) -> None:
    for length in range(1, 14):
        text = separator.join("x" * (length + at % 3) for at in range(40))
        value: Any = {"key": text, "other": [text, f" {text}", f"{text} "]}
        for _ in range(indent):
            value = {"a": value, "z": 1}
        assert yaml_write.write(value) == yaml_events.emit(value)


@pytest.mark.parametrize("length", [127, 128, 129])
def test_long_keys(length: int) -> None:
    for key in ("k" * length, "é" * (length // 2), "k k" * (length // 3)):
        assert yaml_write.write({key: {"a": 1}}) == yaml_events.emit({key: {"a": 1}})


@pytest.mark.parametrize("value", [None, True, 0, -5, 2**64, 1.5, 1e21, "text", "", [], {}, [[]], [{}], {"a": []}])
def test_other_values(value: object) -> None:
    assert yaml_write.write(value) == yaml_events.emit(value)


def test_random_documents() -> None:
    source = random.Random(2026)

    def text() -> str:
        kind = source.random()
        if kind < 0.4:
            return source.choice(WORDS)
        if kind < 0.6:
            return source.choice(["", " "]).join(source.choice(WORDS) for _ in range(source.randrange(1, 5)))
        if kind < 0.9:
            ends = ["", "", "'", ":", ",", "#", "-"]
            return " ".join("x" * source.randrange(25) + source.choice(ends) for _ in range(source.randrange(1, 14)))
        return "".join(source.choice("ab \n'\":#-?[]{},&*!|>%@`\\0é.") for _ in range(source.randrange(150)))

    def value(depth: int) -> Any:
        kind = source.random()
        if depth and kind < 0.3:
            return {source.choice([text(), "a", "b"]): value(depth - 1) for _ in range(source.randrange(4))}
        if depth and kind < 0.5:
            return [value(depth - 1) for _ in range(source.randrange(4))]
        return text() if kind < 0.95 else source.choice([None, True, 7, 1.5])

    for _ in range(3000):
        document = value(source.randrange(1, 5))
        assert yaml_write.write(document) == yaml_events.emit(document), document


def test_a_large_document_is_joined_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"items": [{"a": at, "b": [{"c": str(at)}, []]} for at in range(2000)], "z": {"a": "b"}}
    whole, joined = yaml_events.emit(value), list[int]()
    join = yaml_write._Document.join

    def recorded(document: yaml_write._Document) -> None:
        joined.append(len(document.parts))
        join(document)

    monkeypatch.setattr(yaml_write._Document, "join", recorded)
    assert yaml_write.write(value) == whole
    assert len(joined) > 1 and max(joined) < 2 * yaml_write._MANY


def test_objects_are_written_without_loading_a_yaml_library() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"a":"b c: d"}\n'},
        },
        "spec": {"containers": [{"name": "c", "args": ["-c", "# no comment", "a: b", "é"], "ports": []}]},
        "status": {
            "message": "a message of many words that goes on until the end of the line, and further: to the next"
        },
    }
    script = f"import sys; from setpoint.meta.yaml_write import write; write({obj!r}); print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
