"""Questions about etcd's log: the versions of a key, the state at a revision, and what was certain at a moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import NamedTuple

from tests.robustness.history import OK, REFUSED, Call, Commit, Frame, History

WRITES = ("create", "update", "delete")


class Version(NamedTuple):
    """The state of a key from one change to the next; revision 0 is its absence before the first change."""

    revision: int
    value: str | None


class Log:
    def __init__(self, commits: list[Commit]) -> None:
        self.commits = sorted(commits, key=lambda each: each.revision)
        self._changes: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
        self._by_value: dict[tuple[str, str | None], int] = {}
        for commit in self.commits:
            self._changes[commit.key].append((commit.revision, commit.value))
            self._by_value.setdefault((commit.key, commit.value), commit.revision)
        self._revisions = {key: [revision for revision, _ in changes] for key, changes in self._changes.items()}
        self._keys = sorted(self._changes)
        self._by_prefix: dict[str, tuple[list[Commit], list[int]]] = {}

    def versions(self, key: str, first: int, end: float) -> Iterator[Version]:
        """Yield the states that a key had at revisions from `first` to before `end`, in order."""
        changes, revisions = self._changes.get(key, []), self._revisions.get(key, [])
        position = bisect_right(revisions, first)
        while True:
            revision, value = changes[position - 1] if position else (0, None)
            if revision >= end:
                return
            yield Version(revision, value)
            if position == len(changes):
                return
            position += 1

    def made_by(self, key: str, value: str | None) -> int:
        """Return the revision at which the key first got this value; 0 if there is none."""
        return self._by_value.get((key, value), 0)

    def at(self, key: str, revision: float) -> tuple[int, str | None]:
        """Return revision and value of a key as of a revision; (0, None) before its first change."""
        position = bisect_right(self._revisions.get(key, []), revision)
        return self._changes[key][position - 1] if position else (0, None)

    def before(self, key: str, revision: int) -> tuple[int, str | None]:
        return self.at(key, revision - 1)

    def state(self, prefix: str, revision: int) -> dict[str, tuple[int, str]]:
        """Return revision and value of all keys with this prefix as of a revision."""
        first, last = bisect_left(self._keys, prefix), bisect_left(self._keys, prefix + "\U0010ffff")
        found = {key: self.at(key, revision) for key in self._keys[first:last]}
        return {key: (changed, value) for key, (changed, value) in found.items() if value is not None}

    def following(self, key: str, revision: int) -> tuple[int, str | None] | None:
        """Return the change of a key that follows the one at `revision`; None if it is the last one."""
        position = bisect_right(self._revisions.get(key, []), revision)
        return self._changes[key][position] if position < len(self._changes.get(key, [])) else None

    def between(self, prefix: str, after: int, until: int) -> list[Commit]:
        """Return the changes of the keys with this prefix after one revision and up to another."""
        if prefix not in self._by_prefix:
            commits = [each for each in self.commits if each.key.startswith(prefix)]
            self._by_prefix[prefix] = commits, [each.revision for each in commits]
        commits, revisions = self._by_prefix[prefix]
        return commits[bisect_right(revisions, after) : bisect_right(revisions, until)]


def revision_of(call: Call, log: Log) -> int:
    """Return the revision that a write made according to the log; 0 if it made none.

    Values are unique, so a create or an update is found by its value. A delete names the revision that it deletes."""
    if call.outcome == REFUSED:
        return 0
    if call.verb == "delete":
        change = log.following(call.key, call.expected)
        return change[0] if change is not None and change[1] is None and call.outcome == OK else 0
    return log.made_by(call.key, call.value)


class Bounds:
    """What is certain about the revision at a moment, from what all clients observed."""

    def __init__(self, history: History, log: Log) -> None:
        observed: list[tuple[float, int]] = [(frame.at, frame.revision) for frame in history.of(Frame)]
        invoked: list[tuple[float, int]] = []
        for call in history.of(Call):
            if call.verb in WRITES:
                if revision := revision_of(call, log):
                    invoked.append((call.invoked, revision))
                    if call.outcome == OK:
                        observed.append((call.answered, revision))
            elif call.outcome == OK:
                observed.append((call.answered, call.revision))
        observed.sort()
        self._observed_at = [at for at, _ in observed]
        self._observed = list(accumulate((revision for _, revision in observed), max))
        invoked.sort()
        self._invoked_at = [at for at, _ in invoked]
        self._invoked = list(accumulate((revision for _, revision in reversed(invoked)), min))[::-1]

    def reached(self, at: float) -> int:
        """Return the greatest revision that some client had observed before this time."""
        position = bisect_left(self._observed_at, at)
        return self._observed[position - 1] if position else 0

    def not_reached(self, at: float) -> float:
        """Return the smallest revision that was made by a write that began after this time."""
        position = bisect_right(self._invoked_at, at)
        return self._invoked[position] if position < len(self._invoked) else inf
