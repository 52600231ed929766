"""Puts a cluster into a kubeconfig that may have others: all of them stay, but for one of the same name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.meta.body import BodyError, dump_yaml, parse_yaml

_SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))


def merge(source: Path, target: Path, name: str) -> None:
    """Raises Failed, and then the target is as it was."""
    own = json.loads(source.read_bytes())
    try:
        found: Any = parse_yaml(target.read_bytes())[0] if target.exists() else {}
    except (OSError, BodyError) as error:
        raise Failed(f"cannot read the kubeconfig {target}: {error}") from None
    found = found or {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    if not isinstance(found, dict):
        raise Failed(f"the kubeconfig {target} is not a mapping of settings; nothing was changed")
    merged = dict(found)
    for section, inner in _SECTIONS:
        entries = merged.get(section) or []
        if not isinstance(entries, list):
            raise Failed(f"in the kubeconfig {target}, {section} is not a list; nothing was changed")
        content = {"cluster": name, "user": name} if section == "contexts" else own[section][0][inner]
        others = [entry for entry in entries if not (isinstance(entry, dict) and entry.get("name") == name)]
        merged[section] = [*others, {"name": name, inner: content}]
    merged["current-context"] = name
    write_privately(target, dump_yaml(merged))


def write_privately(path: Path, data: bytes) -> None:
    """All or nothing, for its owner's eyes alone. What a link leads to is written, and the link stays."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)  # one that was left behind may have any mode
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
