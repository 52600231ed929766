"""A container runtime that gives prepared answers, with CRI's real messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.node.cri.client import CriError
from setpoint.node.cri.messages import METHODS
from setpoint.wire.grpc import Code


class RuntimeAnswers:
    """Answers each method with what the test has set for it, and UNAVAILABLE without that."""

    def __init__(self, **answers: Mapping[str, Any]) -> None:
        self.answers: dict[str, Mapping[str, Any] | None] = dict(answers)
        """The fields of the response by method."""
        self.calls: list[tuple[str, Any]] = []
        self.errors: list[CriError] = []
        """The errors of the next calls, before the answers."""

    async def call(self, method: str, request: Any, *, timeout: float) -> Any:
        METHODS[method].request(**request)
        self.calls.append((method, request))
        if self.errors:
            raise self.errors.pop(0)
        answer = self.answers.get(method)
        if answer is None:
            raise CriError(Code.UNAVAILABLE, "connection refused")
        return METHODS[method].response(**answer)
