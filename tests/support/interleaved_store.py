"""A store on which a test can act between the commit of a transaction and the answer to its caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from setpoint.store.interface import KeyValue, NotedCause, Op
from setpoint.store.memory import MemoryStore

Act = Callable[[Sequence[Op]], Awaitable[None]]


class InterleavedStore(MemoryStore):
    """Calls `after_commit` once, with the operations of the next transaction that `selects` accepts."""

    def __init__(self) -> None:
        super().__init__()
        self.selects: Callable[[Sequence[Op]], bool] = lambda ops: True
        self.after_commit: Act | None = None

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        answer = await super().txn(ops, cause)
        act = self.after_commit
        if act is not None and self.selects(ops):
            self.after_commit = None
            await act(ops)
        return answer
