"""Who we are to admission webhooks: an administrator says it by their hosts, with wildcards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from setpoint.meta.clock import Clock
from setpoint.meta.ttl_cache import TtlCache

_DEFAULT_PORT = ":443"
_ANYBODY = "*"
_OURSELVES = "kubernetes.default.svc:443"
_KEPT_FOR = 60.0
"""So many seconds: tokens in files change."""


class NoIdentity(Exception):
    """What should be shown to a webhook cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    headers: Sequence[tuple[str, str]] = ()
    """They are never shown to anybody else."""
    certificate: tuple[bytes, bytes] | None = None
    """PEM, with its key."""


NOBODY = Identity()


class WebhookIdentities:
    """`names` stand for hosts; `current` is the one for those that nobody speaks of, empty: nobody. `read` gives what a
    name stands for, and raises NoIdentity."""

    def __init__(self, names: Collection[str], current: str, read: Callable[[str], Identity], clock: Clock) -> None:
        self._names = frozenset(names)
        self._current = current
        self._read = read
        self._known: TtlCache[str, Identity] = TtlCache(max(1, len(self._names)), clock)

    def of(self, target: str) -> Identity:
        """`target`: host and port; of a Service `name.namespace.svc` and its port. Raises NoIdentity."""
        name = self.name_of(target)
        if not name:
            return NOBODY
        known = self._known.get(name)
        if known is None:
            known = self._read(name)
            self._known.keep(name, known, _KEPT_FOR)
        return known

    def name_of(self, target: str) -> str:
        """The first that there is, from the narrowest to the widest."""
        if target == _OURSELVES:
            return ""
        found = (name for name in _candidates(target) if name in self._names)
        return next(found, self._current)


def _candidates(target: str) -> Iterator[str]:
    yield from _with_wildcards(target)
    if target.endswith(_DEFAULT_PORT):
        yield from _with_wildcards(target.removesuffix(_DEFAULT_PORT).strip("[]"))
    yield _ANYBODY


def _with_wildcards(target: str) -> Iterator[str]:
    yield target
    steps = target.split(".")
    for at in range(1, len(steps)):
        yield "*." + ".".join(steps[at:])
