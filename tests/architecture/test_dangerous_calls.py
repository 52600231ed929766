"""No code of the package executes data: no eval, no pickle, no shell."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "setpoint"
SUSPICIOUS = re.compile(
    r"\b(eval|exec|compile|__import__)\(|\b(pickle|marshal|shelve)\b|yaml\.\w*load|\.system\(|shell="
)
FORBIDDEN = {"eval", "exec", "__import__", "load", "full_load", "unsafe_load", "system", "loads", "popen"}
OF_MODULES = {"builtins", "yaml", "pickle", "marshal", "os", "shelve"}
ALLOWED = {("meta/decode.py", "exec")}
"""Calls that are safe: decoders are generated from the field tables, with field names quoted."""


def calls(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("eval", "exec", "__import__"):
            found.add(function.id)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            if function.value.id in OF_MODULES and function.attr in FORBIDDEN:
                found.add(f"{function.value.id}.{function.attr}")
        if any(one.arg == "shell" and not _is_false(one.value) for one in node.keywords):
            found.add("shell=")
    return found


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def test_dangerous_calls_are_detected() -> None:
    text = "import os, yaml\nos.system('x')\nyaml.load(y)\neval('1')\nsubprocess.run('x', shell=True)"
    assert calls(ast.parse(text)) == {"os.system", "yaml.load", "eval", "shell="}


def test_the_package_has_no_dangerous_call() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if SUSPICIOUS.search(text):
            found |= {(path.relative_to(SOURCE).as_posix(), call) for call in calls(ast.parse(text))}
    assert found <= ALLOWED, found - ALLOWED
