"""From one version of a custom kind to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Obj = dict[str, Any]


class Conversion(Protocol):
    """Objects have kind and apiVersion. What is handed in is not changed; the result may share parts with it."""

    @property
    def remote(self) -> bool:
        """Whether somebody else must be asked: then only `convert_all` works."""
        ...

    def convert(self, obj: Obj, api_version: str) -> Obj: ...

    async def convert_all(self, objs: Sequence[Obj], api_version: str) -> list[Obj]: ...


class NoConversion:
    """All versions have the same fields; only the name of the version changes."""

    remote = False

    def convert(self, obj: Obj, api_version: str) -> Obj:
        return {**obj, "apiVersion": api_version}

    async def convert_all(self, objs: Sequence[Obj], api_version: str) -> list[Obj]:
        return [self.convert(obj, api_version) for obj in objs]
