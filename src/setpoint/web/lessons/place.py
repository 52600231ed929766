"""The place where a lesson is taken in the page: a fork of its own, with the learner's files for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import orjson

from setpoint.client import Client, Unreachable
from setpoint.client.prefixed import PrefixedTransport
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, Forbidden, NotFound, ServiceUnavailable
from setpoint.view.course.course import Course
from setpoint.view.course.lesson import Lesson
from setpoint.web.lessons.actions import LessonActions
from setpoint.web.workspace import HOME, Workspace

_PATH: Final = "/setpoint/v1/forks"
_PREFIX: Final = "lesson-"
_AGENT: Final = "setpoint-page"
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.1
_SLEEP_AFTER: Final = 30
"""Seconds without a request after which the cluster of a lesson that was left sleeps."""
NO_FORKS: Final = (
    "Lessons in the page need a cluster of their own beside this one, and this server does not offer that. "
    "`setpoint lesson` in a terminal uses the cluster itself."
)


class LessonPlace:
    """The fork of one lesson."""

    def __init__(self, client: Client, clock: Clock, fork: str, course: Course, lesson: Lesson) -> None:
        """`client` is one of the server itself, with the rights of the learner."""
        self._root = client
        self._clock = clock
        self._fork = fork
        self._course = course
        self._lesson = lesson
        sender = client.sender
        self.prefix = f"/forks/{fork}"
        """The path prefix of the logical cluster."""
        transport = PrefixedTransport(sender.transport, self.prefix)
        self.client = Client(transport, clock, user_agent=_AGENT, impersonate=sender.impersonate)
        """A client of the lesson's cluster, with the rights of the learner."""
        self.actions = LessonActions(self.client, clock, self._control)

    async def open(self) -> bool:
        """Create the cluster unless it exists, and return whether it was created. Raises ApiError, NotFound if the
        server has no forks."""
        for _ in range(_ATTEMPTS):
            try:
                found = await self._json("GET", self._path())
            except NotFound:
                if await self._create():
                    return True
                continue
            if found["state"] in ("ready", "asleep"):  # a request wakes it
                return False
            if found["state"] == "failed":
                await self._json("DELETE", self._path())
            await self._clock.sleep(_PAUSE)
        raise ServiceUnavailable(f"the cluster of the lesson {self._lesson.name} does not start")

    async def _create(self) -> bool:
        start = self._lesson.start
        body = {"name": self._fork, "empty": True, "nodes": start.nodes, "pace": start.pace}
        try:
            await self._json("POST", _PATH, {**body, "apply": self._course.start_objects(self._lesson)})
        except AlreadyExists:  # another tab was faster
            return False
        except Forbidden:
            if not await self._remove_oldest():
                raise
            return False
        except NotFound:
            raise NotFound(NO_FORKS) from None
        return True

    async def _remove_oldest(self) -> bool:
        """Remove the cluster of the lesson that was not used for longest, and return whether there was one."""
        forks = (await self._json("GET", _PATH))["forks"]
        lessons = [each for each in forks if each["name"].startswith(_PREFIX) and each["name"] != self._fork]
        if not lessons:
            return False
        oldest = min(lessons, key=lambda each: each.get("used", ""))
        await self._json("DELETE", f"{_PATH}/{quote(oldest['name'])}")
        return True

    async def reset(self) -> None:
        """Let the cluster begin again. Raises ApiError."""
        await self._json("POST", self._path(), {"reset": True})

    async def leave(self) -> None:
        """Let the cluster sleep soon, unless something else uses it: the lesson was left."""
        with suppress(ApiError, Unreachable):
            await self._json("POST", self._path(), {"sleepAfter": _SLEEP_AFTER})

    async def running(self) -> dict[str, Any]:
        """Return which components and operators run: `components` and `operators`. Raises ApiError."""
        found = await self._json("GET", self._path())
        return {"components": found["components"], "operators": found["operators"], "failures": found["failures"]}

    async def begin(self, workspace: Workspace, *, anew: bool) -> None:
        """Create what the lesson begins with, in the cluster and among the learner's files. A file that the learner has
        already stays as it is, unless the lesson begins anew. Raises ApiError."""
        for file in self._lesson.files:
            path = f"{HOME}/{file.name}"
            if anew or not workspace.files.is_file(path):
                workspace.files.write(path, file.text)
        workspace.save()
        await self.actions.begin(self._lesson)

    async def _control(self, wanted: Mapping[str, Any]) -> None:
        await self._json("POST", self._path(), wanted)

    def _path(self) -> str:
        return f"{_PATH}/{quote(self._fork)}"

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = orjson.dumps(body) if body is not None else b""
        try:
            return await self._root.sender.json(method, path, body=data)
        except ApiError as error:
            if error.code == 405:
                raise NotFound(NO_FORKS) from None
            raise
