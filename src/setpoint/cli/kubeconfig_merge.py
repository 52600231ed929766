"""Merge a cluster into a kubeconfig and remove it again; other entries are unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.private_file import locked, write_privately
from setpoint.meta.body import BodyError, dump_yaml, parse_yaml

_SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))
_RECORD = "merged-into"
"""File beside a cluster's kubeconfig that lists the files it was merged into."""
_MOST = 100


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
        return [Path(line) for line in source.with_name(_RECORD).read_text(encoding="utf-8").splitlines()[:_MOST]]
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
