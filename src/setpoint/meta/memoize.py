"""Memoization of functions of short texts, with bounds that a client cannot exceed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

MAX_LENGTH = 512
"""Maximum length of a memoized text: caching thousands of longer ones would let clients fill the memory."""


def memoized(
    maxsize: int,
) -> Callable[[Callable[Concatenate[str, P], R]], Callable[Concatenate[str, P], R]]:
    """Return an `lru_cache` decorator for a pure function whose first argument is a text that clients choose."""

    def decorate(function: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
        kept = cast(Callable[Concatenate[str, P], R], lru_cache(maxsize=maxsize)(function))

        def call_alone(text: str) -> R:
            return kept(text) if len(text) <= MAX_LENGTH else function(text)  # type: ignore[call-arg]

        def call(text: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return kept(text, *args, **kwargs) if len(text) <= MAX_LENGTH else function(text, *args, **kwargs)

        # Most have this one argument and are asked many times for every request; passing on others takes as long again.
        chosen = cast(Callable[Concatenate[str, P], R], call_alone) if function.__code__.co_argcount == 1 else call
        chosen.__doc__, chosen.__name__ = function.__doc__, function.__name__
        return chosen

    return decorate
