"""Operations of the simulated runtime that complete at a known time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from setpoint.node.runtime.interface import Execution, HookResult, T


class Delayed(Generic[T]):
    """An Operation that completes at a time that is known from the start. Its effect occurs when the result is taken,
    so one that is given up has none."""

    __slots__ = ("_complete", "_ready_at", "_value")

    def __init__(self, ready_at: float, complete: Callable[[float], T]) -> None:
        """Create the operation. `complete(now)` is called once, at or after `ready_at`, and returns the result."""
        self._ready_at = ready_at
        self._complete: Callable[[float], T] | None = complete
        self._value: T | None = None

    def result(self, now: float) -> T | None:
        if self._complete is not None and now >= self._ready_at:
            complete, self._complete = self._complete, None
            self._value = complete(now)
        return self._value

    @property
    def ready_at(self) -> float | None:
        return self._ready_at

    def cancel(self) -> None:
        self._complete = None


class HookExecution:
    """The Operation of a lifecycle hook that executes a command."""

    __slots__ = ("_execution",)

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def result(self, now: float) -> HookResult | None:
        code = self._execution.exit_code
        return None if code is None else HookResult(code == 0)

    @property
    def ready_at(self) -> float | None:
        """None: `advance` of the runtime returns when the command does something next."""
        return None

    def cancel(self) -> None:
        """The command continues until its container ends, as in a real container."""
