"""Checks of watches against etcd's log: ordered, without duplicates, complete, resumable, with correct bookmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.robustness.commits import Log
from tests.robustness.history import Commit, Frame, History, LastWrite, Violation, WatchStart


@dataclass
class _Segment:
    """The frames of a watch from one connection."""

    start: WatchStart
    frames: list[Frame] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Return the revision from which the watch can be resumed."""
        return self.frames[-1].revision if self.frames else self.start.revision


def watches(history: History, log: Log) -> Iterator[Violation]:
    """Yield the frames of each watch that are out of order, duplicate, missing, wrong or unexpected."""
    for segments in _by_watch(history).values():
        for before, segment in zip([None, *segments], segments):
            start = segment.start
            if before is not None and not start.relisted and start.revision != before.position:
                message = f"the client resumed at {start.revision} and not at {before.position}"
                yield Violation("watches", message, (start,))
            yield from _segment(segment, log)


def _segment(segment: _Segment, log: Log) -> Iterator[Violation]:
    start, reached = segment.start, segment.start.revision
    for frame in segment.frames:
        if frame.revision < reached or (frame.revision == reached and frame.type != "BOOKMARK"):
            message = f"a frame of revision {frame.revision} came after revision {reached}"
            yield Violation("watches", message, (start, frame))
            return
        reached = frame.revision
    expected = log.between(start.prefix, start.revision, reached)
    delivered = [frame for frame in segment.frames if frame.type != "BOOKMARK"]
    by_revision = {frame.revision: frame for frame in delivered}
    for commit in expected:
        got = by_revision.pop(commit.revision, None)
        if got is None:
            message = f"the change at revision {commit.revision} was not delivered before revision {reached}"
            yield Violation("watches", message, (start, commit))
        elif problem := _difference(got, commit, log):
            yield Violation("watches", problem, (start, got, commit))
    for frame in by_revision.values():
        yield Violation("watches", "a frame is not in the log", (start, frame))


def _difference(frame: Frame, commit: Commit, log: Log) -> str:
    existed = log.before(commit.key, commit.revision)[1]
    expected_type = "DELETED" if commit.value is None else "ADDED" if existed is None else "MODIFIED"
    if frame.type != expected_type:
        return f"the type is {frame.type} and not {expected_type}"
    if frame.key != commit.key:
        return f"the frame is about {frame.key} and not about {commit.key}"
    value = existed if commit.value is None else commit.value
    return "" if frame.value == value else f"the value is {frame.value!r} and not {value!r}"


def watches_end(history: History) -> Iterator[Violation]:
    """Yield watches that did not deliver the last write of the run."""
    segments = _by_watch(history)
    for last in history.of(LastWrite):
        for name, found in segments.items():
            if found[-1].start.prefix == last.prefix and found[-1].position < last.revision:
                message = f"{name} ended at revision {found[-1].position}, before the last write at {last.revision}"
                yield Violation("watches-end", message, (found[-1].start,))


def _by_watch(history: History) -> dict[str, list[_Segment]]:
    """Return the segments of each watch, in order."""
    segments = {(start.watch, start.connection): _Segment(start) for start in history.of(WatchStart)}
    for frame in history.of(Frame):
        segments[frame.watch, frame.connection].frames.append(frame)
    found: dict[str, list[_Segment]] = defaultdict(list)
    for (name, _), segment in segments.items():
        found[name].append(segment)
    return found
