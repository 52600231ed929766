"""Takes rights away from a worker of a class that it does not need. There is no code of learners in it, only data; this
limits what a defect could do."""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_MAX_FILES: Final = 16_384
_MAX_MEMORY: Final = 32 << 30
"""Bytes of address space, which is far more than memory in use."""


def confine() -> None:
    """Give up new privileges and core files, and limit files and address space of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, _MAX_FILES)
    _lower(resource.RLIMIT_AS, _MAX_MEMORY)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _lower(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (limit, limit))
