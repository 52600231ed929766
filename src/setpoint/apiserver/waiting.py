"""Reads that must be at least as new as a revision the client has seen elsewhere."""

from __future__ import annotations

from setpoint.apiserver.registry import Registry
from setpoint.meta.errors import Timeout

_PATIENCE = 3.0
_STEP = 0.05


async def wait_for_revision(registry: Registry, revision: int) -> None:
    """Returns once the cache has reached `revision`; a revision that does not come soon is a timeout."""
    clock = registry.env.clock
    deadline = clock.monotonic() + _PATIENCE
    while registry.cache.fresh < revision:
        if clock.monotonic() >= deadline:
            error = Timeout.of(f"Too large resource version: {revision}, current: {registry.cache.fresh}", 1)
            assert error.details is not None
            error.details = {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            }
            raise error
        await clock.sleep(_STEP)
