"""Bounds for regular expressions that users write: RE2 matches in linear time, but compiling is one call into C.

While that call runs, no other thread does. Upstream compiles every pattern that fits into a request."""

from __future__ import annotations

import re2

MAX_PATTERN_LENGTH = 16 * 1024
"""Maximum number of characters of a pattern, about 10 ms of compilation at worst."""
_MAX_CLASSES = 100
"""Maximum number of Unicode classes in a pattern; each expands to hundreds of ranges."""

TOO_LARGE = "expression too large"
"""Message of Go's regexp package for a pattern that is too large."""

OPTIONS = re2.Options()
OPTIONS.log_errors = False
OPTIONS.max_mem = 2 << 20


def is_too_large(pattern: str) -> bool:
    return len(pattern) > MAX_PATTERN_LENGTH or pattern.count("\\p") + pattern.count("\\P") > _MAX_CLASSES
