"""The files and the typed lines of a user of the page, for each logical cluster.

A workspace is in memory and bounded. All terminals of a user in the same logical cluster share it, in all tabs; it
outlives them. Lessons read the files and the lines.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from setpoint.meta.errors import NotFound
from setpoint.node.runtime.files import DiskLimits, Files
from setpoint.web.feed import PageContext

HOME: Final = "/home/user"
"""The directory in which a terminal begins."""
PART: Final = "workspaces"
"""The name of the `Workspaces` in `PageContext.parts`."""
LIMITS: Final = DiskLimits(files=100, file_size=1 << 20, total_size=1 << 20)
_MAX_LINES: Final = 1_000
MAX_WORKSPACES: Final = 256
_MOMENT: Final = re.compile(r"/at/[^/]*")


class TypedLine(NamedTuple):
    """A line that was typed in a terminal."""

    at: float
    """Seconds since the epoch."""
    text: str
    """The line as typed; several lines if a quote or a here-document continued it."""


class Workspace:
    """The files and typed lines of a user in a logical cluster."""

    def __init__(self) -> None:
        self.files = Files(limits=LIMITS)
        self.files.make_directory(HOME)
        self._lines: deque[TypedLine] = deque(maxlen=_MAX_LINES)

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


class Workspaces:
    """The workspaces by user and logical cluster. Those that were not used for the longest time are dropped when there
    are too many."""

    def __init__(self, most: int = MAX_WORKSPACES) -> None:
        self._most = most
        self._found: OrderedDict[tuple[str, str], Workspace] = OrderedDict()

    def of(self, user: str, cluster: str) -> Workspace:
        """Return the workspace of a user. The past of a cluster has the one of its present."""
        key = (user, _MOMENT.sub("", cluster))
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Workspace()
            if len(self._found) > self._most:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return found

    def typed_by(self, user: str) -> list[Sequence[TypedLine]]:
        """Return the lines that a user has typed, for each logical cluster."""
        return [found.typed for (name, _), found in self._found.items() if name == user]


def workspace_of(context: PageContext) -> Workspace:
    """Return the workspace of the context's user and logical cluster. Raises NotFound if the page has none."""
    found = context.parts.get(PART)
    if not isinstance(found, Workspaces):
        raise NotFound("this page server has no files")
    return found.of(context.user, context.cluster)
