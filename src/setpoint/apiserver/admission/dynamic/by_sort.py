"""Which of the configured hooks can concern a request: found once for each sort of request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from setpoint.apiserver.admission.dynamic.matching import Criteria
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.plugin import Attributes


class Concerned(Protocol):
    criteria: Criteria


H = TypeVar("H", bound=Concerned)
_Sort = tuple[str, str, str, str, str]


class BySort(Generic[H]):
    def __init__(self, served: Served) -> None:
        self._served = served
        self._hooks: Sequence[H] = ()
        self._found: dict[_Sort, tuple[H, ...]] = {}

    def replace(self, hooks: Sequence[H]) -> None:
        self._hooks, self._found = hooks, {}

    def for_request(self, attrs: Attributes) -> tuple[H, ...]:
        """Those that the request could match, in their order."""
        if not self._hooks:
            return ()
        resource = attrs.resource
        sort = (attrs.operation, resource.group, resource.version, resource.plural, attrs.subresource)
        found = self._found.get(sort)
        if found is None:
            found = self._found[sort] = tuple(
                hook
                for hook in self._hooks
                if hook.criteria.concerns(self._served, attrs.operation, resource, attrs.subresource)
            )
        return found
