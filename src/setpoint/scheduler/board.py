"""Describes the scheduling loop for people who watch and debug it (`view/loops.py`)."""

from __future__ import annotations

from setpoint.reconcile.gate import Gate, Mode
from setpoint.reconcile.loop_board import MAX_KEYS, Times, rate_and_durations
from setpoint.scheduler.scheduler import LOOP, Scheduler
from setpoint.view.loops import DelayedKey, LoopRow, QueuedKey, WaitingPod


def scheduler_row(scheduler: Scheduler, gate: Gate, times: Times) -> LoopRow:
    """Return the row of the scheduler. A decision never suspends, so no Pod is in work when this is called."""
    queue = scheduler.queue
    active = queue.active()
    delayed = queue.backing_off()
    waiting = queue.unschedulable()
    return LoopRow(
        LOOP,
        LOOP,
        gate.mode,
        gate.every if gate.mode is Mode.SLOW else 0.0,
        depth=len(active),
        added=queue.added,
        done=scheduler.attempts,
        failed=scheduler.attempts - scheduler.decided,
        **rate_and_durations(scheduler.recent, times),
        queued=[QueuedKey(each.key, max(each.triggers.count, 1), times.at(each.since)) for each in active[:MAX_KEYS]],
        delayed=[DelayedKey(each.key, times.at(at), each.attempts, each.message) for at, each in delayed[:MAX_KEYS]],
        delayed_count=len(delayed),
        waiting=[WaitingPod(each.key, each.attempts, each.message, each.gated) for each in waiting[:MAX_KEYS]],
        waiting_count=len(waiting),
    )
