"""Runs a test in a mount namespace of its own, so that no mount outlives it."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import inspect
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from setpoint.node.host.mounts import set_propagation

_CLONE_NEWNS = 0x00020000


def in_mount_namespace(test: Callable[..., Any]) -> Callable[..., None]:
    """Make a test, which may be a coroutine function, run in a child process with private mounts. Needs root."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        if os.geteuid():
            pytest.skip("needs root")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _run_and_exit(test, arguments, writer)
        os.close(writer)
        with open(reader, encoding="utf-8") as problems:
            problem = problems.read()
        _, status = os.waitpid(child, 0)
        assert not problem and not status, f"in the mount namespace:\n{problem}"

    if inspect.iscoroutinefunction(test):
        del run.__wrapped__  # the wrapper is not a coroutine function
        run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


def _run_and_exit(test: Callable[..., Any], arguments: dict[str, Any], writer: int) -> None:
    code = 1
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        set_propagation("/", "private", recursive=True)
        result = test(**arguments)
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))
        code = 0
    except BaseException:
        os.write(writer, traceback.format_exc().encode()[-60000:])
    finally:
        os._exit(code)


async def _awaited(result: Any) -> None:
    await result
