"""The line that shows which of several possible clusters a command acts on."""

from __future__ import annotations

import re
from pathlib import Path

from setpoint.client.cluster_choice import Choice, display_path

_CURRENT = re.compile(rb"""(?:^|[{,])\s*"?current-context"?[ \t]*:[ \t]*["']?([^"'\s,}]+)""", re.MULTILINE)
_MOST = 1 << 20


def which_cluster(choice: Choice, home: Path) -> str:
    """Return the line if there is a cluster of this directory and another possible one; otherwise an empty string."""
    if choice.how == "--data-dir":
        return ""
    if choice.directory is not None:
        other = home / ".kube" / "config"
        name = _current_context(other)
        where = f"setpoint: using the cluster of this directory ({display_path(choice.directory)})"
        return f"{where}, not context {name} of {_homely(other, home)}" if name else ""
    if choice.skipped is not None:
        used = {"KUBECONFIG": "the cluster of $KUBECONFIG"}.get(choice.how, f"the cluster that {choice.how} names")
        return f"setpoint: using {used}, not the cluster of this directory ({display_path(choice.skipped)})"
    return ""


def _current_context(path: Path) -> str:
    """Return the name without parsing the file, which may be large or invalid: this must neither wait nor fail."""
    try:
        with open(path, "rb") as file:
            found = _CURRENT.search(file.read(_MOST))
    except OSError:
        return ""
    name = found[1].decode("utf-8", "replace") if found else ""
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def _homely(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}"
