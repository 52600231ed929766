"""A course: a folder with `course.yaml` and one Markdown file for each lesson.

title: The reconciliation loop
locale: en
lessons: [manifest, spec-and-status]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from setpoint.meta.manifests import ManifestProblem, manifests
from setpoint.meta.objects import Obj
from setpoint.view.course.block_reading import read_yaml
from setpoint.view.course.lesson import NAME, Lesson, read_lesson
from setpoint.view.course.markdown import numbered
from setpoint.view.course.problems import InvalidLesson, Problem, ProblemList

COURSE_FILE = "course.yaml"
MAX_LESSONS = 100
MAX_FILES = 300
MAX_FOLDER_BYTES = 4 * 1024 * 1024
_FIELDS = ("title", "locale", "lessons")


@dataclass(frozen=True, slots=True)
class Course:
    """The lessons of a folder. A lesson that is invalid is not among them; `problems` says why."""

    title: str
    locale: str
    lessons: tuple[Lesson, ...]
    files: Mapping[str, bytes]
    """The other files of the folder, by name: manifests of the start state, and images."""
    problems: tuple[Problem, ...] = ()

    def lesson(self, name: str) -> Lesson | None:
        """Return the lesson of this name, or of this number from 1 on; None if there is none."""
        for number, each in enumerate(self.lessons, 1):
            if name in (each.name, str(number)):
                return each
        return None

    def start_objects(self, lesson: Lesson) -> list[Obj]:
        """Return the objects that exist before a lesson begins, in their order."""
        return [obj for name in lesson.start.apply for obj in manifests(self.files[name])]

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "locale": self.locale,
            "lessons": [each.summary_json() for each in self.lessons],
            "problems": [str(each) for each in self.problems],
        }


def read_course(files: Mapping[str, bytes], place: str = "") -> Course:
    """Return the course of a folder, given its files by name. `place` is put before the names in problems.

    It never raises: what is wrong is in `problems`."""
    problems: list[Problem] = []
    names, title, locale = _read_index(files, place, problems)
    lessons: list[Lesson] = []
    for name in names:
        file = f"{name}.md"
        try:
            lessons.append(read_lesson(name, place + file, files[file], sha256(files[file]).hexdigest()[:12]))
        except InvalidLesson as error:
            problems += error.problems
    others = {name: data for name, data in files.items() if not name.endswith(".md") and name != COURSE_FILE}
    course = Course(title, locale, tuple(lessons), others)
    for lesson in lessons:
        problems += _check_references(course, lesson, place)
    broken = {each.file for each in problems}
    usable = tuple(each for each in lessons if f"{place}{each.name}.md" not in broken)
    return Course(title, locale, usable, others, tuple(problems))


def _read_index(files: Mapping[str, bytes], place: str, problems: list[Problem]) -> tuple[list[str], str, str]:
    """Return the names of the lessons in their order, the title and the locale."""
    present = sorted(name.removesuffix(".md") for name in files if name.endswith(".md") and name != "README.md")
    data = files.get(COURSE_FILE)
    if data is None:
        return present[:MAX_LESSONS], "Lessons", "en"
    found = ProblemList(place + COURSE_FILE)
    index = read_yaml(numbered(data.decode("utf-8", "replace")), found)
    index = index if isinstance(index, dict) else {}
    for name in index:
        if name not in _FIELDS:
            found.add(1, f"unknown field {str(name)[:60]}; known are {', '.join(_FIELDS)}")
    title, locale, names = index.get("title", "Lessons"), index.get("locale", "en"), index.get("lessons", present)
    if not isinstance(title, str) or not isinstance(locale, str):
        found.add(1, "title and locale must be texts")
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names) or len(names) > MAX_LESSONS:
        found.add(1, f"lessons: must be a list of at most {MAX_LESSONS} names")
        names = []
    for name in names:
        if name not in present:
            found.add(1, f"lessons: there is no file {name[:60]}.md")
    for name in present:
        if name not in names:
            found.add(1, f"lessons: {name}.md is not in the list")
    problems += found.found
    return [name for name in dict.fromkeys(names) if name in present], str(title), str(locale)


def _check_references(course: Course, lesson: Lesson, place: str) -> Iterable[Problem]:
    """Yield the references of a lesson to lessons and files that do not exist."""
    file, known = f"{place}{lesson.name}.md", {each.name for each in course.lessons}
    for name in (*lesson.after, *lesson.links()):
        if name not in known:
            yield Problem(file, 0, f"there is no lesson {name[:60]}")
    for name in lesson.images():
        if name not in course.files:
            yield Problem(file, 0, f"there is no image {name[:60]}")
    missing = [name for name in lesson.start.apply if name not in course.files]
    for name in missing:
        yield Problem(file, 1, f"start.apply: there is no file {name[:60]}")
    if not missing:
        try:
            course.start_objects(lesson)
        except ManifestProblem as error:
            yield Problem(file, 1, f"start.apply: {error}")


def new_lesson(title: str) -> str:
    """Return the text of a new lesson, which passes `setpoint lesson test`."""
    return _SKELETON.replace("TITLE", title)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a lesson."""
    return NAME.fullmatch(text) is not None


_SKELETON = """---
title: "TITLE"
summary: "One sentence for the list of lessons."
minutes: 5
start: {nodes: 3}
show: chain deployment/web
---
Say what this lesson is about, and ask a question that its reader cannot answer yet.

:::run
kubectl create deployment web --image=nginx:1.28 --replicas=2
:::

:::check two-ready
say: "Two Pods of web are ready (now: {count})"
let: {count: 'objects("Pod", "default").filter(p, ready(p) && label(p, "app") == "web").size()'}
when: count == 2
else:
- when: '!present("Deployment/web")'
  say: There is no Deployment web yet.
hint:
- "`kubectl get pods --watch` shows the Pods as they start."
:::

:::quiz
Who created the Pods?
- ( ) kubectl
- (x) the ReplicaSet controller
- ( ) the scheduler
because: kubectl created the Deployment only. Controllers did the rest.
:::

:::solution
kubectl create deployment web --image=nginx:1.28 --replicas=2
kubectl rollout status deployment/web
@answer quiz-1 b
:::
"""
