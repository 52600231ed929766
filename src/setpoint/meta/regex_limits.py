"""Bounds for regular expressions that users write: RE2 matches in linear time, but compiling is one call into C.

While that call runs, nothing else does. Upstream compiles whatever fits into a request."""

from __future__ import annotations

import re2

LONGEST = 16 * 1024
"""Characters of a pattern; about 10 ms of compiling at worst."""
_MOST_CLASSES = 100
"""Unicode classes in a pattern; each expands to hundreds of ranges."""

TOO_LARGE = "expression too large"
"""As Go's regexp package says it."""

OPTIONS = re2.Options()
OPTIONS.log_errors = False
OPTIONS.max_mem = 2 << 20


def is_too_large(pattern: str) -> bool:
    return len(pattern) > LONGEST or pattern.count("\\p") + pattern.count("\\P") > _MOST_CLASSES
