"""Finds the revision of a moment of the past (`meta/moments.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from setpoint.apiserver.history.reader import HistoryReader
from setpoint.meta.errors import BadRequest, Expired
from setpoint.meta.moments import parse_moment
from setpoint.meta.times import unix_milliseconds

MARKS = ("kube-system", "setpoint-marks")
"""Namespace and name of the ConfigMap whose data are the revisions of all marks, by name."""


class Moment(NamedTuple):
    """A revision of the past."""

    revision: int
    at: datetime | None
    """The time that was asked for, else when that revision was written; None if it is not known."""

    @property
    def header(self) -> str:
        """The value of the header `Setpoint-At`."""
        if self.at is None:
            return str(self.revision)
        return f"{self.revision}; {self.at.strftime('%Y-%m-%dT%H:%M:%S')}.{self.at.microsecond // 1000:03d}Z"


class Moments:
    """Finds the revision that a text names."""

    def __init__(self, reader: HistoryReader, marks: Callable[[], Mapping[str, Any]]) -> None:
        """`marks` returns the ConfigMap `MARKS`; empty if there is none."""
        self._reader = reader
        self._marks = marks

    async def find(self, text: str, now: datetime) -> Moment:
        """Return the moment that a text names. Raises BadRequest, and Expired if it is too long ago."""
        try:
            named = parse_moment(text, now)
        except ValueError as error:
            raise BadRequest(str(error)) from None
        if named is None:
            named = self._reader.oldest if text == "start" else self._marked(text)
        time = None
        if isinstance(named, datetime):
            time = min(named, now).astimezone(UTC)
            try:
                named = await self._reader.revision_at(unix_milliseconds(named))
            except Expired:
                raise await self.expired(text) from None
        if named > self._reader.newest:
            raise BadRequest(f"revision {named} has not happened yet; the newest is {self._reader.newest}")
        if named < self._reader.oldest and not self._reader.keeps(named):
            raise await self.expired(f"revision {named}")
        return await self.at(named) if time is None else Moment(named, time)

    async def at(self, revision: int) -> Moment:
        """Return the moment of a revision."""
        written = await self._reader.time_of(revision)
        return Moment(revision, datetime.fromtimestamp(written / 1000, UTC) if written else None)

    async def expired(self, what: str) -> Expired:
        """Return the error for a moment that is too long ago."""
        oldest = await self.at(self._reader.oldest)
        since = f" of {oldest.header.partition('; ')[2]}" if oldest.at is not None else ""
        return Expired(f"{what} is not in the history, which begins with revision {oldest.revision}{since}")

    def _marked(self, name: str) -> int:
        marked = (self._marks().get("data") or {}).get(name)
        if marked is None:
            raise BadRequest(f"there is no mark {name}; `setpoint mark {name}` sets one")
        if not (marked.isascii() and marked.isdigit()) or len(marked) > 19:
            raise BadRequest(f"the mark {name} names no revision")
        return int(marked)
