"""Hooks of single resources in the write path."""

from __future__ import annotations

from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj
from setpoint.store.interface import Op


class Hooks:
    """Effects of the writes of a resource beyond the object itself, such as the allocation of addresses and ports.

    `before_*` may change the object and reserve resources; it returns further operations for the same transaction.
    `release` is called if the write is not made."""

    contended = False
    """Whether concurrent writes may compete for what is reserved; the write is then prepared again."""

    validates = False
    """Whether `validate` is called."""

    async def start(self) -> None:
        """Called before the first write."""

    def stop(self) -> None:
        """Called after the last write."""

    async def before_create(self, ctx: RequestContext, obj: Obj) -> list[Op]:
        return []

    async def before_update(self, ctx: RequestContext, obj: Obj, old: Obj) -> list[Op]:
        return []

    async def before_delete(self, ctx: RequestContext, old: Obj) -> list[Op]:
        return []

    async def validate(self, ctx: RequestContext, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        """Return errors for what this user may not write. `old` is the stored object, or None for a creation;
        `well_formed` says whether the kind's validation succeeded."""
        return []

    def release(self, ctx: RequestContext, obj: Obj) -> None:
        """Called if the write that `before_*` prepared is not made."""
