"""Observes a learner's cluster: reads the writes since the lesson began and the objects that checks need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from setpoint.client import Client
from setpoint.client.resources import query_of
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Expired, Forbidden, NotFound
from setpoint.meta.objects import Obj
from setpoint.view.course.checks import Check, Needs, Verdict, evaluate, is_true
from setpoint.view.course.facts import Facts, History
from setpoint.view.course.lesson import Lesson
from setpoint.web.write_stream import PATH

_PAGE: Final = 500
_MAX_PAGES: Final = 20
_MAX_OBJECTS: Final = 2_000
_FUTURE: Final = 2**53


@dataclass(frozen=True, slots=True)
class LearnersDesk:
    """The things that a learner has outside of the cluster."""

    typed: Callable[[], Sequence[str]] = tuple
    """Returns the lines typed since the lesson began."""
    file: Callable[[str], str | None] = lambda name: None
    """Returns the text of a file; None if there is none."""
    answers: Callable[[], Mapping[str, bool]] = dict
    """Returns whether the last answer to each question is right."""


@dataclass(slots=True)
class Observer:
    """Collects facts about the cluster of a lesson, and evaluates its checks."""

    client: Client
    clock: Clock
    lesson: Lesson
    revision: int
    """The revision after which the writes of the lesson are counted."""
    desk: LearnersDesk = field(default_factory=LearnersDesk)
    records_writes: bool = True
    """Whether the server records who wrote what; checks that read the history cannot be met otherwise."""
    _history: History = field(default_factory=History)
    _read: int = 0
    """The revision up to which writes were read."""

    @classmethod
    async def newest(cls, client: Client) -> int:
        """Return the newest revision of a cluster; 0 if the server does not record writes. Raises ApiError."""
        try:
            found = await client.sender.json("GET", PATH, query_of({"after": _FUTURE, "limit": 1}))
            return int(found["newest"])
        except (NotFound, Forbidden, LookupError, TypeError, ValueError):
            return 0

    @property
    def read(self) -> int:
        """The revision up to which writes were read."""
        return max(self.revision, self._read)

    def add(self, write: Mapping[str, Any]) -> set[str]:
        """Add a write that was received otherwise, and return the kinds of its objects."""
        revision = int(write["revision"])
        if revision <= self.read:
            return set()
        self._read = revision
        return self._history.add(write)

    async def read_writes(self) -> set[str]:
        """Read the writes since the last call, and return the kinds of their objects. Raises ApiError."""
        kinds: set[str] = set()
        for _ in range(_MAX_PAGES):
            query = query_of({"after": self.read or None, "limit": _PAGE, "changes": True})
            try:
                found = await self.client.sender.json("GET", PATH, query)
            except Expired:
                self._read = await self.newest(self.client)
                break
            except (NotFound, Forbidden):
                self.records_writes = False
                break
            for write in found["writes"]:
                kinds |= self.add(write)
            self._read = max(self._read, int(found["next"] or found["newest"]))
            if not found["next"]:
                break
        return kinds

    def concerns(self, kinds: Iterable[str]) -> bool:
        """Return whether writes to objects of these kinds can change the verdict of a check."""
        needs, kinds = self.lesson.needs(), set(kinds)
        return bool(kinds) and ("history" in needs.variables or bool(kinds & {_bare(each) for each in needs.kinds}))

    async def facts(self, needs: Needs | None = None) -> Facts:
        """Return the facts that the lesson's checks need, or those of `needs`. Raises ApiError."""
        needs = needs if needs is not None else self.lesson.needs()
        objects = {kind: await self._objects(kind) for kind in sorted(needs.kinds)}
        files = {name: text for name in needs.files if (text := self.desk.file(name)) is not None}
        return Facts(
            self.clock.now(), objects, self._history.writes, list(self.desk.typed()), files, dict(self.desk.answers())
        )

    async def verdicts(self, facts: Facts | None = None) -> dict[str, Verdict]:
        """Return the verdict of every check by its id. Raises ApiError."""
        facts = facts if facts is not None else await self.facts()
        return {each.id: evaluate(each, facts) for each in self.lesson.checks}

    async def is_met(self, check: Check) -> bool:
        """Return whether a check is met now. Raises ApiError."""
        return evaluate(check, await self.facts(check.needs)).ok

    def outcomes(self, facts: Facts) -> set[str]:
        """Return the ids of the predictions whose outcome can be seen."""
        return {each.quiz.id for each in self.lesson.predictions if is_true(each.until, facts)}

    async def _objects(self, kind: str) -> list[Obj]:
        resource = await self._resource(kind)
        if resource is None:
            return []
        try:
            found = await self.client.list_page(resource, limit=_MAX_OBJECTS)
        except (NotFound, Forbidden):
            return []
        return found.items

    async def _resource(self, kind: str) -> Resource | None:
        """Return the resource of `Kind` or `Kind.group`; None if the server does not have it."""
        name, _, group = kind.partition(".")
        for fresh in (False, True):
            for each in await self.client.discovery.resources(fresh=fresh):
                if each.kind == name and "list" in each.verbs and (not group or each.group == group):
                    return each
        return None


def _bare(kind: str) -> str:
    return kind.partition(".")[0]


async def newest_revision(client: Client) -> int:
    """Return the newest revision of a cluster; 0 if it cannot be read."""
    try:
        return await Observer.newest(client)
    except ApiError:
        return 0
