"""Frames of handled exceptions are released without the garbage collector, large objects in small steps."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from setpoint.meta.tracebacks import drop_traceback, release_frames, release_parts


class Part:
    """An object that records how many objects were still held when it was released."""

    def __init__(self, log: list[int]) -> None:
        self._log = log

    def __del__(self) -> None:
        self._log.append(len(sys._getframe(1).f_locals.get("held", ())))


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def failure(fail: Callable[[], None]) -> ValueError:
    """Return the exception that `fail` raises, as its handler sees it."""
    try:
        fail()
    except ValueError as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("release", [drop_traceback, release_frames])
def test_frames_are_released(release: Callable[[BaseException], None]) -> None:
    held: list[weakref.ref[Part]] = []

    def fail() -> None:
        one, other = Part([]), Part([])
        held.extend(map(weakref.ref, (one, other)))
        try:
            raise KeyError(other)
        except KeyError as error:
            raised = ValueError("x")  # a local variable that holds the exception: a reference cycle
            raise raised from error

    error = failure(fail)
    assert all(each() is not None for each in held)
    release(error)
    assert held[0]() is None
    cause = error.__cause__
    assert cause is not None
    assert cause.__traceback__ is None


def test_parts_of_large_objects_are_released_one_by_one() -> None:
    log: list[int] = []

    def fail() -> None:
        obj = {"spec": {"containers": [{"env": [Part(log), "text"]} for _ in range(100)]}, "parts": [Part(log)]}
        assert obj
        check(obj)

    def check(same: Any) -> None:
        errs = [Part(log) for _ in range(50)]
        raise ValueError(len(errs), len(same))

    release_frames(failure(fail))
    assert len(log) == 151
    assert len(set(log)) == 151
    assert log == sorted(log, reverse=True)


def test_parts_of_any_container_are_released_one_by_one() -> None:
    log: list[int] = []

    def returning(value: Any) -> Callable[[], Any]:
        return lambda: value

    functions = returning([returning(Part(log)) for _ in range(50)])
    objects: list[Any] = [(*(Part(log) for _ in range(50)), "text"), functions, [{"a": Part(log)}]]
    del functions
    release_parts(objects)
    assert objects == []
    assert len(set(log)) == 101


def test_shared_objects_stay_as_they_are() -> None:
    shared = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}

    def fail() -> None:
        live, obj = shared, {**shared, "status": {}}
        raise ValueError(len(live), len(obj))

    release_frames(failure(fail))
    assert shared == {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}


def test_the_frame_of_the_handler_keeps_its_variables() -> None:
    mine = [{"a": "b"}]
    try:
        raise ValueError(mine)
    except ValueError as error:
        release_frames(error)
    assert mine == [{"a": "b"}]
