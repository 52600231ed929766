"""The files and the typed lines of a user of the page, for each logical cluster.

A workspace is bounded. All terminals of a user in the same logical cluster share it, in all tabs; it outlives them.
Lessons read the files and the lines. Those of the cluster itself and of its lessons are kept in files, if there is a
directory for them; all others end with the server.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from setpoint.meta.errors import NotFound
from setpoint.node.runtime.files import DiskLimits, Files
from setpoint.web.feed import PageContext
from setpoint.web.record_files import RecordFiles

HOME: Final = "/home/user"
"""The directory in which a terminal begins."""
PART: Final = "workspaces"
"""The name of the `Workspaces` in `PageContext.parts`."""
LIMITS: Final = DiskLimits(files=100, file_size=1 << 20, total_size=1 << 20)
_MAX_LINES: Final = 1_000
MAX_WORKSPACES: Final = 256
_MOMENT: Final = re.compile(r"/at/[^/]*")
_KEPT: Final = re.compile(r"(?:/forks/lesson-(?!dropped-).*)?")
"""The logical clusters whose files are kept when the server ends. Other forks, and what was dropped onto the page, end
with it."""
_SAVE_INTERVAL: Final = 1.0
"""Seconds between two writes of the same workspace, except the last one of a terminal."""


class TypedLine(NamedTuple):
    """A line that was typed in a terminal."""

    at: float
    """Seconds since the epoch."""
    text: str
    """The line as typed; several lines if a quote or a here-document continued it."""


class WorkspaceContent(NamedTuple):
    """The files and lines of a workspace. Directories without files, links and modes are no part of it."""

    files: dict[str, str]
    """The texts by path."""
    lines: tuple[TypedLine, ...]
    """The oldest first."""

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, **self._asdict()}

    @classmethod
    def from_json(cls, found: Any) -> WorkspaceContent:
        """Raises ValueError."""
        match found:
            case {"format": 1, "files": dict(files), "lines": list(lines)}:
                if all(isinstance(text, str) for text in files.values()):
                    return cls(files, tuple(_line(each) for each in lines))
        raise ValueError("this is not a workspace")


def _line(found: Any) -> TypedLine:
    match found:
        case [float(at) | int(at), str(text)]:
            return TypedLine(float(at), text)
    raise ValueError("a line is its time and its text")


class Workspace:
    """The files and typed lines of a user in a logical cluster."""

    def __init__(self, kept: WorkspaceContent | None = None, keep: Callable[[WorkspaceContent], None] | None = None):
        """`kept` is what it contains first, and `keep` saves what it contains; None if it is in memory only."""
        self.files = Files(limits=LIMITS)
        self.files.make_directory(HOME)
        self._lines: deque[TypedLine] = deque(maxlen=_MAX_LINES)
        if kept is not None:
            for path, text in kept.files.items():
                self.files.write(path, text)
            self._lines.extend(kept.lines)
        self._keep = keep
        self._kept = self._content()
        self._kept_at = float("-inf")

    @property
    def typed(self) -> Sequence[TypedLine]:
        """The latest lines, the oldest first."""
        return self._lines

    def add_line(self, at: float, text: str) -> None:
        if text.strip():
            self._lines.append(TypedLine(at, text))

    def file_texts(self) -> dict[str, str]:
        """Return the texts of all files by path; those in the home directory by their path in it."""
        return {path.removeprefix(f"{HOME}/"): text for path, text in self.files.texts().items()}

    def save_sometimes(self, now: float) -> None:
        """Save what has changed, at most once a second of the monotonic clock: `save` follows."""
        if now - self._kept_at >= _SAVE_INTERVAL:
            self._kept_at = now
            self.save()

    def save(self) -> None:
        """Save what has changed, if the workspace is kept."""
        if self._keep is not None and (content := self._content()) != self._kept:
            self._kept = content
            self._keep(content)

    def _content(self) -> WorkspaceContent:
        return WorkspaceContent(self.files.texts(), tuple(self._lines))


class Workspaces:
    """The workspaces by user and logical cluster. Those that were not used for the longest time are dropped from memory
    when there are too many."""

    def __init__(self, most: int = MAX_WORKSPACES, directory: Path | None = None) -> None:
        """`directory` keeps them; None means that they end with this object."""
        self._most = most
        self._found: OrderedDict[tuple[str, str], Workspace] = OrderedDict()
        self._records = RecordFiles(directory) if directory is not None else None

    def of(self, user: str, cluster: str) -> Workspace:
        """Return the workspace of a user. The past of a cluster has the one of its present."""
        key = (user, _MOMENT.sub("", cluster))
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._load(*key)
            if len(self._found) > self._most:
                self._found.popitem(last=False)[1].save()
        self._found.move_to_end(key)
        return found

    def file_texts(self, user: str, cluster: str) -> dict[str, str]:
        """Return the texts of a workspace's files (`Workspace.file_texts`), without keeping it in memory for that."""
        return (self._found.get((user, cluster)) or self._load(user, cluster)).file_texts()

    def _load(self, user: str, cluster: str) -> Workspace:
        records = self._records
        if records is None or not _KEPT.fullmatch(cluster):
            return Workspace()
        name = sha256(f"{user}\n{cluster}".encode()).hexdigest()[:32]
        what = f"the workspace of {cluster or 'the cluster'}"

        def keep(content: WorkspaceContent) -> None:
            records.save(name, what, content.to_json())

        return Workspace(records.load(name, what, WorkspaceContent.from_json), keep)

    def typed_by(self, user: str) -> list[Sequence[TypedLine]]:
        """Return the lines that a user has typed, for each logical cluster."""
        return [found.typed for (name, _), found in self._found.items() if name == user]


def workspace_of(context: PageContext) -> Workspace:
    """Return the workspace of the context's user and logical cluster. Raises NotFound if the page has none."""
    found = context.parts.get(PART)
    if not isinstance(found, Workspaces):
        raise NotFound("this page server has no files")
    return found.of(context.user, context.cluster)
