"""What happens around the writes of some resources, besides what happens around all of them."""

from __future__ import annotations

from setpoint.apiserver.call import Call
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.field import Errors
from setpoint.store.interface import Op


class Hooks:
    """What a few resources need around a write that reaches beyond the object (addresses, ports, events' lifetime).

    `before_*` may change the object and may reserve; it returns further operations for the same transaction. `release`
    is called if the write did not happen after all."""

    contended = False
    """Whether others may be faster with what the further operations want; the write is then prepared once more."""

    judges = False
    """Whether `objections` are asked for."""

    async def start(self) -> None:
        """Before the first write."""

    def stop(self) -> None:
        """After the last."""

    async def before_create(self, call: Call, obj: Obj) -> list[Op]:
        return []

    async def before_update(self, call: Call, obj: Obj, old: Obj) -> list[Op]:
        return []

    async def before_delete(self, call: Call, old: Obj) -> list[Op]:
        return []

    async def objections(self, call: Call, obj: Obj, old: Obj | None, well_formed: bool) -> Errors:
        """What this user may not put into the object, by field. `old`: what is there (None: nothing yet)."""
        return []

    def release(self, call: Call, obj: Obj) -> None:
        """The write that `before_*` prepared was not made."""
