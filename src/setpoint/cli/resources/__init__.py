"""Resolve the objects of a command from `pods a b`, `deploy/x svc/y`, `-f file`, `-l app=web` or `--all`.

Callers may rely on these guarantees: named objects are in the order of the command line, and those of files in the
order of their documents; a cluster-scoped object has no namespace, and a namespaced one always has one; the arguments
are checked before any request.
"""

from setpoint.cli.resources.choosing import ALL_NAMESPACES, SELECTORS, Chosen, choose, fetch, from_files
from setpoint.cli.resources.manifests import FILES, Document, read_files
from setpoint.cli.resources.target import Selection, Target

__all__ = [
    "ALL_NAMESPACES", "FILES", "SELECTORS", "Chosen", "Document", "Selection", "Target", "choose", "fetch",
    "from_files", "read_files",
]  # fmt: skip
