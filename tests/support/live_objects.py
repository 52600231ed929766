"""Which objects are alive, for tests that nothing but the garbage collector would free what has ended."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Inside the block memory is freed by reference counting alone; garbage of earlier tests is collected first."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def live(*types: type | str) -> dict[str, int]:
    """Return how many instances of each type are alive, by the type's name. A type of which there is none is left out.
    Types that cannot be imported are given by name."""
    known = {each: each.__qualname__ for each in types if isinstance(each, type)}
    named = {each for each in types if isinstance(each, str)}
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        name = known.get(type(each)) or type(each).__qualname__
        if type(each) in known or name in named:
            found[name] += 1
    return dict(found)
