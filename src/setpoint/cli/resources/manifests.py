"""Read objects from YAML and JSON files with several documents, directories, standard input and kustomizations."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.meta import manifests
from setpoint.meta.body import BodyError
from setpoint.meta.goformat import quote

FILES = (
    texts("filename", "f", help="Filename, directory, or URL to files identifying the resource"),
    switch("recursive", "R", help="Process the directory used in -f, --filename recursively."),
    text("kustomize", "k", help="Process a kustomization directory."),
)
_EXTENSIONS = (".json", ".yaml", ".yml")
_URL = re.compile(r"https?://")
STDIN = "STDIN"


class Document(NamedTuple):
    obj: dict[str, Any]
    source: str


def files_given(call: Invocation) -> bool:
    return bool(call.flags.filename or _kustomization(call))


def _kustomization(call: Invocation) -> str:
    """Return the directory of `-k`; empty for commands without that flag."""
    found: str = getattr(call.flags, "kustomize", "")
    return found


def read_files(call: Invocation, *, validate: bool = False) -> Iterator[Document]:
    """Yield the objects of the flags FILES, including items of lists. Raise Failed.

    With `validate`, an object must have apiVersion and kind before anything else is checked.
    """
    if directory := _kustomization(call):
        if call.flags.filename:
            raise Failed("only one of -f or -k can be specified")
        if call.flags.recursive:
            raise Failed("the -k flag can't be used with -f or -R")
        # Imported here because it is rarely needed.
        from setpoint.cli.kustomize import build

        for obj in build(Path(directory), warn=call.print_err):
            yield Document(obj, directory)
        return
    for source, data in _contents(call):
        yield from documents(data, source, validate=validate)


def documents(data: bytes, source: str, *, validate: bool = False) -> Iterator[Document]:
    for found in values(data, source):
        if not isinstance(found, dict):
            raise Failed(f"error parsing {source}: an object is a mapping, not {type(found).__name__}")
        if validate and (unsaid := [f"{key} not set" for key in ("apiVersion", "kind") if not found.get(key)]):
            problem = unsaid[0] if len(unsaid) == 1 else f"[{', '.join(unsaid)}]"
            raise Failed(
                f"error validating {quote(source)}: error validating data: {problem}; if you choose to ignore these "
                "errors, turn validation off with --validate=false"
            )
        yield from _opened(found, source)


def values(data: bytes, source: str) -> Iterator[Any]:
    """Yield the documents of a text; empty ones are skipped."""
    try:
        yield from manifests.values(data)
    except BodyError as error:
        raise Failed(f"error parsing {source}: {error}") from None


def _opened(obj: dict[str, Any], source: str) -> Iterator[Document]:
    if not obj.get("kind"):
        import json

        raise Failed(
            f"unable to decode {quote(source)}: Object 'Kind' is missing in '{json.dumps(obj, separators=(',', ':'))}'"
        )
    if not (str(obj["kind"]).endswith("List") and isinstance(obj.get("items"), list)):
        yield Document(obj, source)
        return
    kind, version = str(obj["kind"]).removesuffix("List"), obj.get("apiVersion")
    for item in obj["items"]:
        if not isinstance(item, dict):
            raise Failed(f"unable to decode {quote(source)}: an item of the list is not an object")
        if kind and not item.get("kind"):
            item = {"apiVersion": version, "kind": kind, **item}
        yield from _opened(item, source)


def _contents(call: Invocation) -> Iterator[tuple[str, bytes]]:
    for name in call.flags.filename:
        if name == "-":
            yield STDIN, call.io.stdin.read()
        elif _URL.match(name):
            raise Failed(
                f"{name}: files are not fetched from the network; fetch it yourself and say `-f -` or its path"
            )
        else:
            for path in _paths(name, getattr(call.flags, "recursive", False)):
                try:
                    yield path, Path(path).read_bytes()
                except OSError as error:
                    raise Failed(f"open {path}: {(error.strerror or str(error)).lower()}") from None


def _paths(name: str, recursive: bool) -> list[str]:
    found = [name] if os.path.lexists(name) else sorted(glob.glob(name))
    if not found:
        raise Failed(f"the path {quote(name)} does not exist")
    paths: list[str] = []
    for path in found:
        paths += sorted(_inside(path, recursive)) if os.path.isdir(path) else [path]
    if not paths:
        raise Failed(f"error reading [{name}]: recognized file extensions are [{' '.join(_EXTENSIONS)}]")
    return paths


def _inside(directory: str, recursive: bool) -> Iterator[str]:
    for entry in os.scandir(directory):
        if entry.is_dir():
            if recursive:
                yield from _inside(entry.path, True)
        elif entry.name.endswith(_EXTENSIONS):
            yield entry.path
