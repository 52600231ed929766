"""JSON for programs that run for a moment.

orjson is several times as fast as the standard library, but it loads modules for as long as a request takes.
Programs that have not loaded it do not load it for small documents.
"""

from __future__ import annotations

import json
import sys
from typing import Any

_SMALL = 256 * 1024
"""Size in bytes up to which loading orjson takes longer than it saves."""


def decode_json(data: bytes) -> Any:
    """Decode JSON that a server or this program has written. Raises ValueError."""
    if len(data) <= _SMALL and "orjson" not in sys.modules:
        return json.loads(data)
    import orjson  # see above

    return orjson.loads(data)


def encode_json(value: Any) -> bytes:
    """Encode plain JSON values. Raises ValueError or TypeError for invalid Unicode; other values that JSON does not
    have may raise too, or are null."""
    if "orjson" not in sys.modules:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    import orjson  # see above

    return orjson.dumps(value)
