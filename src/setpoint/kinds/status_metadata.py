"""Strategy of kinds whose `/status` does not change metadata either."""

from __future__ import annotations

from setpoint.kinds.strategy import Context, Obj, StatusStrategy

_KEPT = ("deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences")


def retain_metadata(obj: Obj, old: Obj) -> None:
    """Restore metadata from `old`, except for what the server itself records there about this write."""
    meta, old_meta = obj["metadata"], old["metadata"]
    for name in _KEPT:
        if name in old_meta:
            meta[name] = old_meta[name]
        else:
            meta.pop(name, None)


class BareStatusStrategy(StatusStrategy):
    """A `/status` that changes nothing but the status."""

    @property
    def resets(self) -> tuple[str, ...]:
        return (*self.reset_fields, "metadata")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        retain_metadata(obj, old)
