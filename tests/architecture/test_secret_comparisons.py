"""Codes and keys of the page and of classes are compared in one place, in constant time (`web/secret_digests.py`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "setpoint"
PLACE = "web/secret_digests.py"
HANDLERS = (
    "web/secret_digests.py",
    "web/sessions.py",
    "web/server.py",
    "cluster/page.py",
    "cluster/classroom/classroom.py",
    "cluster/classroom/front.py",
    "cluster/classroom/worker.py",
    "cluster/classroom/worker_link.py",
    "cluster/classroom/wrong_codes.py",
)
"""The modules in which secrets occur. Other modules of these packages do not read them from requests."""
SECRETS = {"code", "codes", "key", "keys", "digest", "secret", "token", "authorization"}
"""Names of variables and attributes that hold secrets in these modules."""
HEADERS = {"authorization", "sec-websocket-protocol"}
"""Headers with secrets, in lower case."""
ALLOWED = {
    ("cluster/classroom/worker.py", "key not in self._seats.ids"),
    ("cluster/classroom/worker.py", "self._of_seats.setdefault(key, Session(key, PageUser(key), b'', now, now))"),
}
"""Comparisons of values that are no secrets: the front names the seat in place of a key, over a private socket."""


def sources() -> dict[str, str]:
    paths = [*(SOURCE / "web").rglob("*.py"), *(SOURCE / "cluster" / "classroom").rglob("*.py")]
    paths.append(SOURCE / "cluster" / "page.py")
    return {str(path.relative_to(SOURCE)): path.read_text() for path in paths}


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names whose values an expression passes on: not those of which it takes the length."""
    match node:
        case ast.Call(func=ast.Name(id="len" | "isinstance" | "same_digest")):
            return
        case ast.Call(func=ast.Name(id="digest_of")):
            yield "digest"
            return
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            yield name
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if name in HEADERS:
            yield "authorization"
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def _is_secret(node: ast.AST) -> bool:
    return any(name.lstrip("_") in SECRETS or name.endswith(("_code", "_key", "_digest")) for name in _names(node))


def comparisons(text: str) -> set[str]:
    """Return the comparisons of secrets: by operators, patterns, methods of texts, lookups in tables, or another import
    of compare_digest."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others) if any(
                isinstance(each, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for each in ops
            ):
                if any(map(_is_secret, (left, *others))):
                    found.add(ast.unparse(node))
            case ast.Match(subject=subject) if _is_secret(subject):
                found.add(f"match {ast.unparse(subject)}")
            case ast.MatchValue(value=value) if _is_secret(value):
                found.add(f"case {ast.unparse(value)}")
            case ast.Call(
                func=ast.Attribute(value=value, attr="startswith" | "endswith" | "index" | "count" | "__eq__")
            ):
                if _is_secret(value):
                    found.add(ast.unparse(node))
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault" | "remove"), args=[argument, *_]) if (
                _is_secret(argument)
            ):
                found.add(ast.unparse(node))
            case ast.Subscript(slice=index) if not isinstance(index, ast.Slice) and _is_secret(index):
                found.add(ast.unparse(node))
            case ast.Name(id="compare_digest") | ast.Attribute(attr="compare_digest"):
                found.add("compare_digest")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "if code == self.code: pass",
        "ok = self.code != given",
        "return key in self._keys",
        "found = [each for each in sessions if each.digest == digest]",
        "match code:\n    case self.code: pass",
        "given.startswith(1) or self.code.startswith(given)",
        "if request.headers.get('authorization') == wanted: pass",
        "if body['code'] == wanted: pass",
        "from hmac import compare_digest\ncompare_digest(code, self.code)",
        "any(session_key == each for each in known)",
        "return self._sessions.get(key)",
        "return self._sessions[digest_of(name)]",
        "if digest_of(given) == digest_of(self.known): pass",
        "self._codes.remove(code)",
        "del self._codes[code]",
    ],
)
def test_a_comparison_of_a_secret_is_detected(text: str) -> None:
    assert comparisons(text)


@pytest.mark.parametrize(
    "text",
    [
        "len(keys) == 1",
        "same_digest(digest_of(code), digest_of(self.code)) == True",
        "session.user.name != seat.id",
        "isinstance(code, str) != other",
        "name == 'authorization'",
        "self._clients[user, cluster]",
        "del self._codes[:-most]",
    ],
)
def test_other_comparisons_are_not(text: str) -> None:
    assert not comparisons(text)


def test_secrets_are_compared_in_one_place() -> None:
    texts = sources()
    found = {(name, each) for name in HANDLERS for each in comparisons(texts[name])}
    assert found - ALLOWED == {(PLACE, "compare_digest")}
    assert not ALLOWED - found, "an entry is out of date"


def test_no_other_module_reads_secrets_from_requests() -> None:
    """Header names and comparisons of digests occur in the listed modules only, so the rule above sees all of them."""
    for name, text in sources().items():
        if name in HANDLERS:
            continue
        tree = ast.parse(text)
        words = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not words & HEADERS, name
        assert "secret_digests" not in text and "compare_digest" not in text, name
