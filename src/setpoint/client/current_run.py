"""The reconcile on whose behalf the current task sends its requests.

`current_run` is set by the control loop that runs, for as long as one reconcile takes; tasks that the reconcile starts
inherit it. A client adds the claim of the current run to each of its writes (`meta/cause.py`).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setpoint.client.run import Run  # most commands have no runs, and need not load what a run needs

current_run: ContextVar[Run | None] = ContextVar("current_run", default=None)
"""The run that the current task belongs to; None if it belongs to none."""
