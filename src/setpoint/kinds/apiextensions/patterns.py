"""Regular expressions that users write: RE2, as Go's, so that no pattern can take more than linear time."""

from __future__ import annotations

from typing import Any

import re2

from setpoint.meta.memoize import memoized
from setpoint.meta.regex_limits import OPTIONS, TOO_LARGE, is_too_large

# Go's messages for the library's errors.
_GO_MESSAGES = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


@memoized(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """Raises re2.error."""
    return re2.compile(pattern, options=OPTIONS)


@memoized(maxsize=4096)
def pattern_error(pattern: str) -> str:
    """Return Go's error message for the pattern; empty if it is valid."""
    if is_too_large(pattern):
        return f"error parsing regexp: {TOO_LARGE}"
    try:
        compile_pattern(pattern)
    except re2.error as error:
        text = error.args[0]
        said = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        what, _, where = said.partition(": ")
        what = _GO_MESSAGES.get(what, what)
        return f"error parsing regexp: {what}: `{where}`"
    return ""
