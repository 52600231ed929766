"""The latest writes that the server refused, which leave no revision.

Control loops retry what was refused, so the last refusal of an object is often the reason why nothing happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

from setpoint.apiserver.request_causes import claimed
from setpoint.apiserver.request_context import READS, RequestContext
from setpoint.meta.cause import claim_of, product_of
from setpoint.meta.errors import ApiError
from setpoint.meta.times import unix_milliseconds
from setpoint.view.why.facts import Refusal
from setpoint.wire.message import ObjectRequest

_MAX_REFUSALS = 1024
_MAX_MESSAGE_LENGTH = 1000
_CODES = frozenset({403, 409, 413, 422, 429})


class Refusals:
    """A ring of refused writes. Requests of unknown users and for unknown objects (401, 404) are not kept."""

    def __init__(self, maximum: int = _MAX_REFUSALS) -> None:
        self._refusals: deque[Refusal] = deque(maxlen=maximum)

    def record(self, ctx: RequestContext, error: ApiError, now: datetime) -> None:
        """Keep the refusal of a write, if it is one; dry runs are none."""
        target = ctx.target
        if ctx.verb in READS or not target.resource or "dryRun" in ctx.query:
            return
        if error.code not in _CODES and error.code < 500:
            return
        claim = claim_of(claimed(ctx.request))
        user = f"{ctx.user.name}<{ctx.impersonator}" if ctx.impersonator else ctx.user.name
        self._refusals.append(
            Refusal(
                unix_milliseconds(now),
                user,
                product_of(ctx.request.headers.get("user-agent", "")),
                f"{ctx.verb}/{target.subresource}" if target.subresource else ctx.verb,
                f"{target.resource}.{target.group}" if target.group else target.resource,
                target.namespace,
                target.name or _sent_name(ctx) or str((error.details or {}).get("name") or ""),
                claim.key,
                error.code,
                error.reason,
                error.message[:_MAX_MESSAGE_LENGTH],
            )
        )

    def __iter__(self) -> Iterator[Refusal]:
        """Return the refusals, newest first."""
        return reversed(tuple(self._refusals))

    def of(self, resource: str, namespace: str, name: str) -> list[Refusal]:
        """Return the refused writes of an object (`pods` or `deployments.apps`), and those of reconciles of its key,
        newest first."""
        key = f"{namespace}/{name}" if namespace else name
        which = (resource, namespace, name)
        return [each for each in self if each.key == key or (each.resource, each.namespace, each.name) == which]


def _sent_name(ctx: RequestContext) -> str:
    """Return the name in the object of a creation from within the process, else an empty string."""
    value = ctx.request.value if isinstance(ctx.request, ObjectRequest) else None
    meta = value.get("metadata") if isinstance(value, dict) else None
    name = meta.get("name") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""
