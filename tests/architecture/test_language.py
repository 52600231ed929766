"""The language of code and documents: the field's terms, and docstrings that are sentences."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "setpoint"
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
HINT = "use the field's term; see CONTRIBUTING.md"

NAME_WORD = re.compile(
    "doors?|strangers?|glances?|wish(?:es|ed)?|told|tells?|heard|hears?|said|says?|patien(?:ce|t)|whoever|somebody|nobody|"
    "anybody|everybody|meddles?|unrest|deaf|imagined|surroundings|worry|worries|speaks?|spoken|talks?|near|far|turns?|rooms?"
)
"""Words that are not a part of a name; `near` and `far` as in "the far server", `turn` as "an iteration of the loop"."""

ALLOWED_NAMES: dict[str, str] = {}
"""Names that contain such a word, each with the reason."""

PROSE = re.compile(
    r"\b(?:doors?|strangers?|glances?|wish(?:es|ed)?|told|tells?|heard|hears?|patience|whoever|whomever|somebody|nobody|anybody|"
    r"everybody|meddles?|unrest|deaf|surroundings|speaks|spoken|rooms|those who|ones? who|(?:far|near) (?:server|node|host|side|end)s?)\b",
    re.IGNORECASE,
)
FRAGMENT_STARTER = re.compile(
    r"(?:As|But|By|Of|Those|That|Which|Whom|Whose|Who|What|Where|With|Without|And|Or|Nor|So|Not|Also|Else|Than|Too)\b"
)
"""First words that make a docstring depend on the line above it. "Whether ..." describes a flag or a result."""

Finding = tuple[str, str]
"""The check that failed, and the message: file, line, word."""

_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_IDENTIFIER = re.compile(r"[A-Za-z_]+")
_START = re.compile(r"[A-Z`\"'\d/$<\[(.-]")
_SENTENCE = re.compile(r"[.:?!][\"')`\]]*(?=\s|$)")
_CODE = re.compile(r"^( *)```.*?^\1```|`[^`]*`", re.DOTALL | re.MULTILINE)


def newlines_before(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start())


@functools.cache
def name_words(name: str) -> list[str]:
    """Return the forbidden words that are parts of an identifier."""
    if name in ALLOWED_NAMES:
        return []
    return [part for part in map(str.lower, _PART.findall(name)) if NAME_WORD.fullmatch(part)]


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the identifier of everything that a module defines or binds."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of the docstrings of the module, its classes, functions and attributes."""
    bodies: list[list[ast.stmt]] = [tree.body]
    while bodies:
        for statement in bodies.pop():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.If():
                    bodies.append(statement.body)


def docstring_problem(text: str) -> str | None:
    """Return why a docstring does not start with a sentence, or None."""
    first = text.strip().split("\n\n", 1)[0]
    word = first.split(maxsplit=1)[0].rstrip(",:;.") if first else ""
    if FRAGMENT_STARTER.match(first):
        return f"docstring starts with the fragment {word!r}"
    if not _START.match(first):
        return f"docstring starts with {word!r}, not with a capital letter or a literal"
    if not _SENTENCE.search(first):
        return f"first sentence of the docstring has no full stop: {first[:40]!r}"
    return None


def source_findings(path: str, text: str) -> Iterator[Finding]:
    """Yield what is wrong with the language of one source file."""
    tree = ast.parse(text)
    for word in name_words(Path(path).stem):
        yield "names", f"{path}:1: {word!r} in the name of the module"
    if any(map(name_words, set(_IDENTIFIER.findall(text)))):
        for line, name in defined_names(tree):
            for word in name_words(name):
                yield "names", f"{path}:{line}: {word!r} in the name {name!r}"
    for line, docstring in docstrings(tree):
        if problem := docstring_problem(docstring):
            yield "docstrings", f"{path}:{line}: {problem}"
        for match in PROSE.finditer(docstring):
            yield "prose", f"{path}:{line + newlines_before(match)}: {match[0]!r} in a docstring"
    # The tokenizer of Python 3.11 is slow: only files that may have such a comment are tokenized.
    if PROSE.search("\n".join(line for line in text.split("\n") if "#" in line)):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                for match in PROSE.finditer(token.string):
                    yield "prose", f"{path}:{token.start[0]}: {match[0]!r} in a comment"


def document_findings(path: str, text: str) -> Iterator[Finding]:
    """Yield the forbidden words in the prose of a Markdown document; code is not prose."""
    prose = _CODE.sub(lambda code: re.sub(r"\S", " ", code[0]), text)
    for match in PROSE.finditer(prose):
        yield "documents", f"{path}:{1 + newlines_before(match)}: {match[0]!r}"


@functools.cache
def all_findings() -> list[Finding]:
    """Return the findings in all files; each file is parsed once for all tests."""
    found: list[Finding] = []
    for path in sorted(SOURCE.rglob("*.py")):
        found += source_findings(path.relative_to(ROOT).as_posix(), path.read_text())
    for path in DOCUMENTS:
        found += document_findings(path.relative_to(ROOT).as_posix(), path.read_text())
    return found


@pytest.mark.parametrize("check", ["names", "prose", "docstrings", "documents"])
def test_language(check: str) -> None:
    messages = [message for found, message in all_findings() if found == check]
    if messages:
        pytest.fail(f"{len(messages)} places; {HINT}\n" + "\n".join(messages), pytrace=False)


def test_allowed_names_are_used() -> None:
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert [name for name in ALLOWED_NAMES if not re.search(rf"\b{name}\b", text)] == []


def test_violations_are_found() -> None:
    text = '''"""The server that nobody stops."""
import os as far  # the stranger's name

class SayHello:
    """as a fragment"""
    limit: int
    """That, lately."""
    def tell(self, near_host):
        self._wishes = room = "whoever"
'''
    path = "src/setpoint/door.py"
    assert sorted(message.removeprefix(f"{path}:") for _, message in source_findings(path, text)) == [
        "1: 'door' in the name of the module",
        "1: 'nobody' in a docstring",
        "2: 'far' in the name 'far'",
        "2: 'stranger' in a comment",
        "4: 'say' in the name 'SayHello'",
        "5: docstring starts with 'as', not with a capital letter or a literal",
        "7: docstring starts with the fragment 'That'",
        "8: 'near' in the name 'near_host'",
        "8: 'tell' in the name 'tell'",
        "9: 'room' in the name 'room'",
        "9: 'wishes' in the name '_wishes'",
    ]


def test_prose_of_documents_excludes_code() -> None:
    text = "Servers that\nspeaks `whoever`\n```\nnobody\n```\n"
    assert list(document_findings("README.md", text)) == [("documents", "README.md:2: 'speaks'")]


def test_ordinary_sentences_pass() -> None:
    text = '''"""`near` returns 3 entries; so far it turns them into text.

those who
"""

def returned(nearest, turned): "Whether the list is empty."
'''
    assert [check for check, _ in source_findings("src/setpoint/returns.py", text)] == ["prose"]
