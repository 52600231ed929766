"""An operator that keeps a cluster as a directory or a Git repository has it: `python -m examples.gitops`."""

from .kind import Sync
from .operator import gitops_operator
from .source import Sources

__all__ = ["Sources", "Sync", "gitops_operator"]
