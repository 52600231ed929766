"""The progress of a learner in a lesson: checks that were met, answers, hints, and when it began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from setpoint.meta.times import format_time, parse_time
from setpoint.view.course.lesson import Lesson

MAX_PROGRESS_BYTES = 256 * 1024
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress in one lesson. It does not expire; another version of the lesson keeps what it still has."""

    lesson: str
    digest: str = ""
    """The version of the lesson at the last change."""
    began: str = ""
    """The time when the lesson began; empty if it has not."""
    revision: int = 0
    """The revision of the cluster after which the writes of the lesson are counted."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """The time when each check was met, by its id."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """The last answer to each question, by its id."""
    right: Mapping[str, bool] = field(default_factory=dict)
    """Whether the last answer to each question was right."""
    hints: Mapping[str, int] = field(default_factory=dict)
    """The number of hints that were shown, by the id of the check."""

    def met(self, check: str, at: datetime) -> Progress:
        """Return the progress after a check was met."""
        return self if check in self.checks else replace(self, checks={**self.checks, check: format_time(at)})

    def unmet(self, check: str) -> Progress:
        """Return the progress after a check that must hold did not hold any more."""
        return replace(self, checks={name: at for name, at in self.checks.items() if name != check})

    def answered(self, quiz: str, answer: Any, *, right: bool) -> Progress:
        return replace(self, answers={**self.answers, quiz: answer}, right={**self.right, quiz: right})

    def hinted(self, check: str, shown: int) -> Progress:
        return replace(self, hints={**self.hints, check: shown})

    def is_done(self, lesson: Lesson) -> bool:
        """Return whether every check of a lesson was met."""
        return bool(lesson.checks) and all(each.id in self.checks for each in lesson.checks)

    def counts(self, lesson: Lesson) -> tuple[int, int]:
        """Return the number of checks that were met, and of all."""
        return sum(each.id in self.checks for each in lesson.checks), len(lesson.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "lesson": self.lesson,
            "digest": self.digest,
            "began": self.began,
            "revision": self.revision,
            "checks": dict(self.checks),
            "answers": dict(self.answers),
            "right": dict(self.right),
            "hints": dict(self.hints),
        }

    @classmethod
    def from_json(cls, found: Any) -> Progress:
        """Raises ValueError."""
        if not isinstance(found, dict) or found.get("format") != _FORMAT or not isinstance(found.get("lesson"), str):
            raise ValueError("this is not the progress of a lesson")
        texts = {name: found.get(name, "") for name in ("lesson", "digest", "began")}
        if not all(isinstance(each, str) and len(each) <= 100 for each in texts.values()):
            raise ValueError("lesson, digest and began must be texts")
        revision = found.get("revision", 0)
        if type(revision) is not int or revision < 0:
            raise ValueError("revision must be a number")
        checks = _texts(found, "checks", str)
        for at in checks.values():
            parse_time(at)
        answers = _texts(found, "answers", (list, str))
        return cls(
            **texts,
            revision=revision,
            checks=checks,
            answers=answers,
            right=_texts(found, "right", bool),
            hints=_texts(found, "hints", int),
        )


def _texts(found: Mapping[str, Any], name: str, kind: Any) -> dict[str, Any]:
    value = found.get(name, {})
    if not isinstance(value, dict) or len(value) > 500 or not all(isinstance(each, kind) for each in value.values()):
        raise ValueError(f"{name} has the wrong form")
    return value
