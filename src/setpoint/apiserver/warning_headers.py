"""Warnings as headers: what is in them may come from anybody, a webhook or the name of an object."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST, _MOST_OF_ONE = 4096, 256
"""Characters of all warnings together; where that is too few, of each."""
_NOT_IN_A_HEADER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"'})


def warning_headers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """One header for each; those with control characters are left out. No more than some 4,000 characters."""
    told = [text for text in texts if text and not _NOT_IN_A_HEADER.search(text)]
    if sum(map(len, told)) > _MOST:
        told, length = [text[:_MOST_OF_ONE] for text in told], 0
        for at, text in enumerate(told):
            if length >= _MOST:
                del told[at:]
                break
            length += len(text)
    return [("Warning", f'299 - "{text.translate(_QUOTED)}"') for text in told]
