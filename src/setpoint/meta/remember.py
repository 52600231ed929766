"""Answers kept for texts that come again and again, within bounds that no client can stretch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

LONGEST = 512
"""Longer texts are worked out anew each time: to keep thousands of them would let strangers fill the memory."""


def remembered(
    maxsize: int,
) -> Callable[[Callable[Concatenate[str, P], R]], Callable[Concatenate[str, P], R]]:
    """`lru_cache` for a pure function whose first argument is a text that clients choose."""

    def decorate(function: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
        kept = cast(Callable[Concatenate[str, P], R], lru_cache(maxsize=maxsize)(function))

        def call(text: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return kept(text, *args, **kwargs) if len(text) <= LONGEST else function(text, *args, **kwargs)

        call.__doc__, call.__name__ = function.__doc__, function.__name__
        return call

    return decorate
