"""Which objects a command is about: from `pods a b`, `deploy/x svc/y`, `-f file`, `-l app=web`, `--all` to resources,
namespaces and names.

What callers may rely on:
- what was named comes in the order in which it was named, files in the order of their documents;
- a cluster-scoped object has no namespace, a namespaced one always has;
- what the words mean is checked before anything is read from the server or written to it.
"""

from setpoint.cli.resources.choosing import ALL_NAMESPACES, SELECTORS, Chosen, choose, fetch, from_files
from setpoint.cli.resources.manifests import FILES, Document, read_files
from setpoint.cli.resources.target import Selection, Target

__all__ = [
    "ALL_NAMESPACES", "FILES", "SELECTORS", "Chosen", "Document", "Selection", "Target", "choose", "fetch",
    "from_files", "read_files",
]  # fmt: skip
