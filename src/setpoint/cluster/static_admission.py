"""Directories with webhooks and policies, followed as long as the server runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from setpoint.apiserver.admission.builtin import NotInitialized
from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests
from setpoint.apiserver.config_files import FileProblem
from setpoint.meta.clock import Clock
from setpoint.meta.field import invalid
from setpoint.meta.goformat import quote

log = logging.getLogger("setpoint.cluster")

_LOOK_EVERY = 1.0
_ENDINGS = (".yaml", ".yml", ".json")
_Background = list[Callable[[], Coroutine[Any, Any, None]]]
_Files = list[tuple[str, bytes]]


def static_manifests(
    background: _Background, clock: Clock, what: str, directory: str, plurals: Sequence[str]
) -> StaticManifests:
    """What is in a directory now; what comes to be in it takes effect, unless it makes no sense. Raises FileProblem,
    NotInitialized."""
    try:
        is_directory = S_ISDIR(Path(directory).stat().st_mode)
    except OSError as error:
        why = f"unable to read: stat {directory}: {(error.strerror or '').lower()}"
        raise FileProblem(invalid("staticManifestsDir", directory, why).message()) from None
    if not is_directory:
        raise FileProblem(invalid("staticManifestsDir", directory, "must be a directory").message())
    followed = FollowedManifests(directory, StaticManifests(plurals, clock), clock)
    try:
        followed.load()
    except FileProblem as problem:
        text = f"failed to load static {what} manifests from {quote(directory)}: {problem}"
        raise NotInitialized(text) from None
    background.append(followed.run)
    return followed.manifests


class FollowedManifests:
    """Read every second, like all files that may change."""

    def __init__(self, directory: str, manifests: StaticManifests, clock: Clock) -> None:
        self.manifests = manifests
        self._directory = Path(directory)
        self._clock = clock
        self._known: _Files | None = None
        self._told = ""
        """What is wrong, so that it is said once."""

    def load(self) -> None:
        """Raises FileProblem; then all stays as it is."""
        files = self._read()
        if files != self._known:
            self.manifests.load(files)
            self._known = files

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            self.look()

    def look(self) -> None:
        before = self.manifests.revision
        try:
            self.load()
        except FileProblem as problem:
            if str(problem) != self._told:
                self._told = str(problem)
                log.error("reloading admission manifest config: %s", problem)
            return
        self._told = ""
        if self.manifests.revision != before:
            log.info("reloaded admission manifest config from %s", self._directory)

    def _read(self) -> _Files:
        where = self._directory
        try:
            paths = sorted(path for path in where.iterdir() if path.suffix.lower() in _ENDINGS and not path.is_dir())
        except OSError as error:
            why = f"open {where}: {(error.strerror or '').lower()}"
            raise FileProblem(f"failed to read manifest directory {quote(str(where))}: {why}") from None
        try:
            return [(str(path), path.read_bytes()) for path in paths]
        except OSError as error:
            why = f"open {error.filename}: {(error.strerror or '').lower()}"
            raise FileProblem(f"failed to read file {quote(str(error.filename))}: {why}") from None
