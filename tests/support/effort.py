"""How hard tests try: less by default, so that all of them are done in minutes; all they can with `SETPOINT_THOROUGH=1`
in the environment."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("SETPOINT_THOROUGH"))


def tries(few: int, many: int) -> int:
    return many if THOROUGH else few
