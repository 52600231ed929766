"""The conversation `lesson`: one lesson in a cluster of its own, with checks that are evaluated as the cluster changes.

It is opened in the cluster itself with `{"lesson": "loop"}`, or with `{"name": "mine", "text": "..."}` for a lesson
that was dropped onto the page, and whose progress this tab alone keeps.

server -> tab
{"lesson": {...}, "cluster": "/forks/lesson-loop", "images": {...}, "next": "image-errors"}    the lesson, first
{"progress": {"checks": {...}, "answers": {...}, "right": {...}, "hints": {...}}, "done": false}
{"checks": {"healed": {"ok": false, "message": "...", "note": "..."}}}              what is met now, and what is wrong
{"outcomes": ["predict-1"]}                                                         predictions whose outcome is visible
{"hints": {"healed": [blocks, ...]}, "offered": "healed"}                           shown hints; a hint is offered
{"running": {"components": {...}, "operators": [...]}}
{"cluster": "/forks/lesson-loop", "anew": true}                                     the cluster began again
{"notice": "..."}                                                                   a sentence about what failed

tab -> server
{"answer": "quiz-1", "value": [1]}    {"hint": "healed"}    {"fault": 0}    {"operator": true}    {"reset": true}
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from setpoint.client import Unreachable
from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.meta.times import format_time
from setpoint.tasks import child_tasks, uninterrupted
from setpoint.view.course.checks import Verdict
from setpoint.view.course.course import Course, is_name
from setpoint.view.course.lesson import MAX_LESSON_BYTES, read_lesson
from setpoint.view.course.problems import InvalidLesson
from setpoint.view.course.progress import Progress
from setpoint.web.feed import Args, Conversation, PageContext, text_argument
from setpoint.web.lessons.folder import Found
from setpoint.web.lessons.library import LessonLibrary, library_of
from setpoint.web.lessons.observer import LearnersDesk, Observer, newest_revision
from setpoint.web.lessons.place import LessonPlace
from setpoint.web.workspace import HOME, PART, Workspaces
from setpoint.web.write_stream import follow_writes

_INTERVAL: Final = 0.2
"""Seconds between two evaluations at least."""
_LOOK: Final = 1.0
"""Seconds between two looks at files and typed lines, which change without a write."""
_OFFER_AFTER: Final = 60.0
"""Seconds without progress after which a hint is offered."""
_MAX_IMAGE: Final = 512 * 1024
_DROPPED: Final = "dropped"
_TYPES: Final = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    if ctx.cluster:
        raise BadRequest("a lesson is opened in the cluster itself; it has a logical cluster of its own")
    library = library_of(ctx)
    found = _dropped(args) if "text" in args else library.courses.find(text_argument(args, "lesson"))
    if found is None:
        raise NotFound(f"there is no lesson {text_argument(args, 'lesson')[:60]!r}")
    await _Session(ctx, library, found, conversation).run()


def _dropped(args: Args) -> Found:
    """Return the lesson of a text. Raises BadRequest, with all problems."""
    name, text = text_argument(args, "name"), text_argument(args, "text", most=MAX_LESSON_BYTES)
    if not is_name(name):
        raise BadRequest("the name of a lesson has lower case letters, digits and -, at most 42")
    try:
        lesson = read_lesson(name, f"{name}.md", text.encode(), sha256(text.encode()).hexdigest()[:12])
    except InvalidLesson as error:
        raise BadRequest(str(error)) from None
    if lesson.start.apply or lesson.images():
        raise BadRequest("a lesson that is dropped onto the page cannot use other files of its folder")
    return Found(_DROPPED, Course(lesson.title, "en", (lesson,), {}), lesson)


class _Session:
    """One tab that takes one lesson."""

    def __init__(self, ctx: PageContext, library: LessonLibrary, found: Found, conversation: Conversation) -> None:
        self._ctx = ctx
        self._library = library
        self._found = found
        self._lesson = found.lesson
        self._conversation = conversation
        self._place = LessonPlace(ctx.client, ctx.clock, found.fork, found.course, found.lesson)
        workspaces = ctx.parts.get(PART)
        self._workspace = (workspaces if isinstance(workspaces, Workspaces) else Workspaces()).of(
            ctx.user, self._place.prefix
        )
        self._observer = Observer(self._place.client, ctx.clock, found.lesson, 0)
        self._progress = Progress(found.id)
        self._verdicts: dict[str, Verdict] = {}
        self._outcomes: set[str] = set()
        self._changed = asyncio.Event()
        """Set when a check may have another verdict."""
        self._moved = 0.0
        """The monotonic time of the last progress."""
        self._offered = ""
        self._follower: asyncio.Event = asyncio.Event()
        """Set to follow the writes of a cluster that began again."""

    async def run(self) -> None:
        created = await self._place.open()
        self._progress = self._load()
        if created or not self._progress.began:
            await self._begin()
        else:
            self._observe()
        await self._conversation.send(self._described())
        await self._send_progress()
        await self._send_running()
        try:
            async with child_tasks(self._receive(), self._follow(), self._evaluate(), self._look()) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            await uninterrupted(self._place.leave())

    def _described(self) -> dict[str, Any]:
        names = [each.name for each in self._found.course.lessons]
        at = names.index(self._lesson.name) + 1
        prefix = self._found.id.removesuffix(self._lesson.name)
        return {
            "lesson": {**self._lesson.to_json(), "id": self._found.id, "number": at},
            "cluster": self._place.prefix,
            "images": _images(self._found),
            "next": prefix + names[at] if at < len(names) else "",
        }

    # -- progress ------------------------------------------------------------------------------------------------------

    def _load(self) -> Progress:
        if self._found.course_name == _DROPPED:
            return Progress(self._found.id, self._lesson.digest)
        return replace(self._library.progress(self._ctx.user).load(self._found.id), digest=self._lesson.digest)

    async def _save(self, progress: Progress) -> None:
        self._progress = progress
        if self._found.course_name != _DROPPED:
            self._library.save(self._ctx.user, progress)
        await self._send_progress()

    async def _send_progress(self) -> None:
        progress = self._progress
        shown = {name: getattr(progress, name) for name in ("checks", "answers", "right", "hints")}
        await self._conversation.send({"progress": shown, "done": progress.is_done(self._lesson)})
        hints = {
            check.id: list(check.hints[: progress.hints[check.id]])
            for check in self._lesson.checks
            if progress.hints.get(check.id)
        }
        await self._conversation.send({"hints": hints, "offered": self._offered})

    async def _begin(self, *, anew: bool = False) -> None:
        """Begin the lesson in its new cluster. Checks that were met before stay met, and files that the learner has
        stay as they are, unless everything begins anew."""
        await self._place.begin(self._workspace, anew=anew)
        revision, now = await newest_revision(self._place.client), self._ctx.clock.now()
        began = replace(self._progress, began=format_time(now), revision=revision, digest=self._lesson.digest)
        self._observe(revision, now)
        await self._save(began)

    def _observe(self, revision: int | None = None, since: datetime | None = None) -> None:
        began = since.timestamp() if since is not None else 0.0
        desk = LearnersDesk(
            lambda: [each.text for each in self._workspace.typed if each.at >= began],
            lambda name: self._workspace.files.read(f"{HOME}/{name}"),
            lambda: self._progress.right,
        )
        start = self._progress.revision if revision is None else revision
        self._observer = Observer(self._place.client, self._ctx.clock, self._lesson, start, desk)
        self._verdicts, self._outcomes = {}, set()
        self._moved = self._ctx.clock.monotonic()

    # -- what changes --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Read the writes of the cluster as they are made, also after it has begun again."""
        while True:
            self._follower.clear()
            async with child_tasks(self._follow_one(self._observer), self._follower.wait()) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    tasks[0].result()
                    return

    async def _follow_one(self, observer: Observer) -> bool:
        while True:
            try:
                await observer.read_writes()
                break
            except (ApiError, Unreachable):  # the cluster is being started
                await self._ctx.clock.sleep(_LOOK)
        self._changed.set()
        try:
            async for line in follow_writes(self._place.client, self._ctx.clock, observer.read):
                if line["type"] == "write" and observer.concerns(observer.add(line["write"])):
                    self._changed.set()
        except NotFound:
            observer.records_writes = False
            await self._notify("This server does not record who writes what, so some checks cannot be met here.")
            await asyncio.Event().wait()
        return True

    async def _look(self) -> None:
        """Evaluate again when files or typed lines have changed, and offer a hint after a while."""
        needs = self._lesson.needs()
        seen: Any = None
        while True:
            await self._ctx.clock.sleep(_LOOK)
            files = [self._workspace.files.read(f"{HOME}/{name}") for name in sorted(needs.files)]
            now = (files, len(self._workspace.typed) if "typed" in needs.variables else 0)
            if now != seen or "now" in needs.variables:
                seen = now
                self._changed.set()
            if not self._offered and self._ctx.clock.monotonic() - self._moved > _OFFER_AFTER:
                await self._offer()

    async def _offer(self) -> None:
        for check in self._lesson.checks:
            if check.id not in self._progress.checks:
                if len(check.hints) > self._progress.hints.get(check.id, 0):
                    self._offered = check.id
                    await self._send_progress()
                return

    async def _evaluate(self) -> None:
        """Evaluate all checks when something has changed that they read, and send what is new."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            observer = self._observer
            try:
                facts = await observer.facts()
                verdicts = await observer.verdicts(facts)
            except (ApiError, Unreachable):  # the cluster is being started
                await self._ctx.clock.sleep(_LOOK)
                self._changed.set()
                continue
            if observer is self._observer:
                await self._take(verdicts, observer.outcomes(facts))
            await self._ctx.clock.sleep(_INTERVAL)

    async def _take(self, verdicts: dict[str, Verdict], outcomes: set[str]) -> None:
        changed = {name: each for name, each in verdicts.items() if self._verdicts.get(name) != each}
        self._verdicts = verdicts
        if changed:
            shown = {
                name: {"ok": each.ok, "message": each.message, "note": each.note} for name, each in changed.items()
            }
            await self._conversation.send({"checks": shown})
        if outcomes - self._outcomes:
            self._outcomes |= outcomes
            await self._conversation.send({"outcomes": sorted(self._outcomes)})
        progress, now = self._progress, self._ctx.clock.now()
        for check in self._lesson.checks:
            if verdicts[check.id].ok:
                progress = progress.met(check.id, now)
            elif check.hold and check.id in progress.checks:
                progress = progress.unmet(check.id)
        if progress != self._progress:
            self._moved, self._offered = self._ctx.clock.monotonic(), ""
            await self._save(progress)

    # -- what the learner does -----------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            message = await self._conversation.receive()
            if not isinstance(message, Mapping):
                raise BadRequest("a message to a lesson must be an object")
            try:
                await self._answer(message)
            except (ApiError, Unreachable) as error:
                if isinstance(error, BadRequest):
                    raise
                await self._notify(f"That did not work: {error}")

    async def _answer(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"answer": str(name), "value": value}:
                await self._grade(name, value)
            case {"hint": str(name)}:
                await self._hint(name)
            case {"fault": int(number)} if 0 <= number < len(self._lesson.faults):
                for fault in self._lesson.faults[number]:
                    await self._place.actions.fault(fault)
                await self._send_running()
            case {"operator": bool(running)} if self._lesson.operators:
                await self._place.actions.run_operator(self._lesson.operators[0], running)
                await self._send_running()
            case {"reset": True}:
                await self._reset()
            case _:
                raise BadRequest(f"a lesson does not know this message: {', '.join(map(str, message))[:100]}")

    async def _grade(self, name: str, value: Any) -> None:
        quiz = next((each for each in self._lesson.quizzes if each.id == name), None)
        if quiz is None:
            raise BadRequest(f"there is no question {name[:60]}")
        if not isinstance(value, str | list) or len(value) > 500:
            raise BadRequest("an answer is a text, or a list of numbers")
        await self._save(self._progress.answered(name, value, right=quiz.is_right(value)))
        self._changed.set()

    async def _hint(self, name: str) -> None:
        check = next((each for each in self._lesson.checks if each.id == name), None)
        if check is None:
            raise BadRequest(f"there is no check {name[:60]}")
        self._offered = ""
        self._moved = self._ctx.clock.monotonic()
        shown = min(self._progress.hints.get(name, 0) + 1, len(check.hints))
        await self._save(self._progress.hinted(name, shown))

    async def _reset(self) -> None:
        """Let the lesson begin again, in a new cluster and without progress."""
        await self._place.reset()
        self._progress = Progress(self._found.id)
        self._offered = ""
        # First: the verdicts that follow are those of the new cluster.
        await self._conversation.send({"cluster": self._place.prefix, "anew": True})
        await self._begin(anew=True)
        self._follower.set()
        await self._send_running()

    async def _send_running(self) -> None:
        if self._lesson.operators or self._lesson.faults:
            await self._conversation.send({"running": await self._place.running()})

    async def _notify(self, text: str) -> None:
        await self._conversation.send({"notice": text})


def _images(found: Found) -> dict[str, str]:
    """Return the images of a lesson as data URLs, by name."""
    images = {}
    for name in found.lesson.images():
        data = found.course.files.get(name, b"")
        if data and len(data) <= _MAX_IMAGE:
            kind = _TYPES[name.rpartition(".")[2]]
            images[name] = f"data:image/{kind};base64,{b64encode(data).decode()}"
    return images
