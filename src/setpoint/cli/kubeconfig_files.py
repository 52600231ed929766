"""Kubeconfig files that commands change: several are read as one, and each entry is written back to its own file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from setpoint.cli.connection import kubeconfig_paths
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.private_file import locked, write_privately
from setpoint.client.cluster_choice import ADMIN, data_directory
from setpoint.client.kubeconfig import KubeconfigError, read_kubeconfig
from setpoint.meta.body import BodyError, dump_yaml, parse_yaml
from setpoint.meta.objects import Obj

_SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))
_RECORD = "merged-into"
"""File beside a cluster's kubeconfig that lists the files it was merged into."""
_MAX = 100


def merge(source: Path, target: Path, name: str, *, replace: bool) -> None:
    """Merge the cluster of `source` into `target` under this name, and make it the current context.

    An entry of the name that belongs to another cluster is replaced only with `replace`. Raise Failed; the target is
    then unchanged.
    """
    own = json.loads(source.read_bytes())
    with locked(target):
        _merge(own, target, name, replace)
    files = dict.fromkeys([*map(str, merged_into(source)), str(target.absolute())])
    write_privately(source.with_name(_RECORD), "".join(f"{path}\n" for path in files).encode())


def _merge(own: dict[str, Any], target: Path, name: str, replace: bool) -> None:
    found = _read(target)
    if not replace and any(one.get("name") == name and one not in _ours(found, own) for one in found["clusters"]):
        raise Failed(f"{target} has another cluster called {name}: say --name for this one. Nothing was changed")
    merged = dict(found)
    for section, inner in _SECTIONS:
        content = {"cluster": name, "user": name} if section == "contexts" else own[section][0][inner]
        others = [entry for entry in found[section] if entry.get("name") != name]
        merged[section] = [*others, {"name": name, inner: content}]
    merged["current-context"] = name
    write_privately(target, dump_yaml(merged))


def remove(source: Path, target: Path) -> list[str]:
    """Remove the cluster of `source` from `target`, with its contexts and users, and return the names of the contexts.

    A removed current context is unset. Raise Failed.
    """
    if not (source.exists() and target.exists()):
        return []
    with locked(target):
        return _remove(json.loads(source.read_bytes()), target)


def _remove(own: dict[str, Any], target: Path) -> list[str]:
    found = _read(target)
    clusters = {entry.get("name") for entry in _ours(found, own)}
    contexts = [entry for entry in found["contexts"] if _inner(entry, "context").get("cluster") in clusters]
    names = [str(entry.get("name")) for entry in contexts]
    if not names and not clusters:
        return []
    rest = [entry for entry in found["contexts"] if entry not in contexts]
    # The user with the cluster's name was added with it; other users may belong to another cluster.
    unused = clusters - {_inner(entry, "context").get("user") for entry in rest}
    left = {
        **found,
        "clusters": [entry for entry in found["clusters"] if entry.get("name") not in clusters],
        "users": [entry for entry in found["users"] if entry.get("name") not in unused],
        "contexts": rest,
    }
    if found.get("current-context") in names:
        left["current-context"] = ""
    write_privately(target, dump_yaml(left))
    return names


def merged_into(source: Path) -> list[Path]:
    """Return the files that the cluster of `source` was merged into."""
    try:
        return [Path(line) for line in source.with_name(_RECORD).read_text(encoding="utf-8").splitlines()[:_MAX]]
    except (OSError, ValueError):
        return []


def _ours(found: dict[str, Any], own: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of our cluster: those with its unique CA or, without a CA, with its address."""
    mine = own["clusters"][0]["cluster"]
    key = "certificate-authority-data" if "certificate-authority-data" in mine else "server"
    return [entry for entry in found["clusters"] if _inner(entry, "cluster").get(key) == mine[key]]


def _inner(entry: dict[str, Any], key: str) -> dict[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, dict) else {}


def _read(target: Path) -> dict[str, Any]:
    """Return the content of a kubeconfig with all its lists. Raises Failed."""
    try:
        found: Any = parse_yaml(target.read_bytes())[0] if target.exists() else {}
    except (OSError, BodyError) as error:
        raise Failed(f"cannot read the kubeconfig {target}: {error}") from None
    found = found or {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    if not isinstance(found, dict):
        raise Failed(f"the kubeconfig {target} is not a mapping of settings; nothing was changed")
    read = dict(found)
    for section, _ in _SECTIONS:
        entries = found.get(section) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise Failed(f"in the kubeconfig {target}, {section} is not a list of entries; nothing was changed")
        read[section] = entries
    return read


SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
"""The sections with the key of their entries' content."""
_PATHS = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}


class Entry(NamedTuple):
    body: Obj
    origin: Path | None = None
    """The file of the entry; None for a new one."""


class Settings:
    """The merged content of the files: for every setting and named entry, the first file that has it decides."""

    def __init__(self) -> None:
        self.clusters: dict[str, Entry] = {}
        self.users: dict[str, Entry] = {}
        self.contexts: dict[str, Entry] = {}
        self.current_context = ""
        self.preferences: Obj = {}
        self.extensions: list[Any] = []

    def section(self, name: str) -> dict[str, Entry]:
        found: dict[str, Entry] = getattr(self, name)
        return found

    def add(self, content: Obj, path: Path) -> None:
        for section, inner in SECTIONS.items():
            for entry in content.get(section) or ():
                self.section(section).setdefault(str(entry.get("name", "")), Entry(entry.get(inner) or {}, path))
        self.current_context = self.current_context or content.get("current-context") or ""
        self.preferences = {**(content.get("preferences") or {}), **self.preferences}
        self.extensions = self.extensions or content.get("extensions") or []


class Files:
    def __init__(self, invocation: Invocation) -> None:
        self.explicit = bool(invocation.flags.kubeconfig)
        paths = kubeconfig_paths(invocation.flags, invocation.io.environment, invocation.io.home)
        self.paths = list(dict.fromkeys(paths))
        named = self.explicit or invocation.io.environment.get("KUBECONFIG")
        self.local = None if named else data_directory(Path.cwd(), invocation.io.home)
        """The data directory of the cluster of this directory if it is in use, otherwise None; its kubeconfig is never
        written."""

    @property
    def default(self) -> Path:
        """Return the file for new entries: the first that exists, or else the last."""
        if len(self.paths) == 1:
            return self.paths[0]
        return next((path for path in self.paths if path.exists()), self.paths[-1])

    def read(self) -> Settings:
        """Read the files; missing ones are skipped."""
        found = Settings()
        for path in self.paths:
            found.add(_content(path), path)
        return found

    def shown(self) -> Settings:
        """Return the settings for reading: the cluster of this directory comes first if it is in use."""
        if self.local is None:
            return self.read()
        found = Settings()
        for path in (self.local / ADMIN, *self.paths):
            found.add(_content(path), path)
        return found

    @contextmanager
    def changing(self, *, relative: bool = True) -> Iterator[Settings]:
        """Yield the settings to change, and write the differences afterwards.

        With `relative`, paths in changed entries that are below their file are written relative to it. Raise Failed;
        nothing is written then.
        """
        with ExitStack() as stack:
            for path in sorted(self.paths):
                stack.enter_context(locked(path))
            before = self.read()
            after = deepcopy(before)
            yield after
            self._write(before, after, relative)

    def _write(self, before: Settings, after: Settings, relative: bool) -> None:
        contents: dict[Path, Obj] = {}

        def content(path: Path | None) -> Obj:
            path = path or self.default
            if path not in contents:
                contents[path] = _content(path)
            return contents[path]

        if after.current_context != before.current_context:
            self._set_current(after.current_context, content)
        if after.preferences != before.preferences:
            content(None)["preferences"] = after.preferences
        for section, inner in SECTIONS.items():
            old, new = before.section(section), after.section(section)
            for name, entry in new.items():
                if old.get(name) != entry:
                    origin = entry.origin or self.default
                    body = _relative(entry.body, section, origin.parent) if relative else entry.body
                    _put(content(origin), section, inner, name, body)
            for name in old.keys() - new.keys():
                _drop(content(old[name].origin), section, name)
        for path, changed in contents.items():
            # Imported here because it is slow to load and not needed for reading.
            from setpoint.meta.body import dump_yaml

            write_privately(path, dump_yaml(_complete(changed)))

    def _set_current(self, name: str, content: Any) -> None:
        if name or self.explicit:
            content(None)["current-context"] = name
            return
        for path in self.paths:
            if _content(path).get("current-context"):
                content(path)["current-context"] = ""
                return


def _content(path: Path) -> Obj:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failed(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    found = read_kubeconfig(data, path)
    for section in SECTIONS:
        entries = found.get(section) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise KubeconfigError(f"in the kubeconfig {path}, {section} is not a list of named entries")
        inner = SECTIONS[section]
        if not all(isinstance(entry.get(inner) or {}, dict) for entry in entries):
            raise KubeconfigError(f"the kubeconfig {path} has an entry in {section} whose {inner} is no mapping")
    return found


def _complete(content: Obj) -> Obj:
    """Return the content with the fields that every kubeconfig has."""
    made = {"apiVersion": "v1", "kind": "Config", "current-context": "", **content}
    for section in SECTIONS:
        made[section] = sorted(made.get(section) or [], key=lambda entry: str(entry.get("name", ""))) or None
    return made


def _put(content: Obj, section: str, inner: str, name: str, body: Obj) -> None:
    entries = list(content.get(section) or [])
    at = next((index for index, entry in enumerate(entries) if entry.get("name") == name), None)
    if at is None:
        entries.append({"name": name, inner: body})
    else:
        entries[at] = {**entries[at], inner: body}
    content[section] = entries


def _drop(content: Obj, section: str, name: str) -> None:
    content[section] = [entry for entry in content.get(section) or () if entry.get("name") != name]


def _relative(body: Obj, section: str, directory: Path) -> Obj:
    made, base = dict(body), directory.absolute()
    for key in _PATHS.get(section, ()):
        path = made.get(key)
        if path and os.path.isabs(path) and Path(path).is_relative_to(base):
            made[key] = str(Path(path).relative_to(base))
    return made
