"""Impersonation headers: act as another user, with the permission to do so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Impersonation:
    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        found = [("impersonate-user", self.user)] if self.user else []
        if self.uid:
            found.append(("impersonate-uid", self.uid))
        found += [("impersonate-group", group) for group in self.groups]
        for key, values in self.extra.items():
            name = "impersonate-extra-" + quote(key.lower(), safe="!#$&'*+-.^_`|~")
            found += [(name, value) for value in values]
        return found
