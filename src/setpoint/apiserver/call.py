"""One request on its way through the API server: what is asked, by whom, and what the answer must mention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from setpoint.apiserver.http.message import Request
from setpoint.apiserver.request import READS, Target
from setpoint.apiserver.worker import LARGE, Worker
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Context, UserInfo
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from setpoint.apiserver.audit.record import Record


Emptied = list[tuple[dict[str, Any], str]]
P = ParamSpec("P")
R = TypeVar("R")
_INLINE = Worker()


@dataclass(slots=True)
class Call:
    request: Request
    target: Target
    query: dict[str, list[str]]
    verb: str
    user: UserInfo
    now: datetime
    resource: Resource | None = None
    """None for paths outside the API."""
    warnings: list[str] = field(default_factory=list)
    """Go out as Warning headers, each once."""
    dry_run: bool = False
    field_manager: str = ""
    forget_ownership: bool = False
    """The client sent an empty managedFields list: a wish that decoding would lose."""
    emptied: Emptied = field(default_factory=list)
    """Where the client sent an empty list that decoding made null (see `meta.decode`)."""
    converted: dict[tuple[str, bytes], dict[str, Any]] | None = None
    """Objects in other versions, as a webhook showed them to this write; None: it was not asked, or failed."""
    flow: tuple[tuple[str, str], ...] = ()
    """Headers that say in which flow it was."""
    audit_id: str = ""
    audit: Record | None = None
    """None: nothing is told of this request."""
    _moment: str = ""
    size: int = 0
    """Bytes of what this request is about, as far as is known: its body and query, or the stored object if larger."""
    worker: Worker = _INLINE
    hands_over: bool = True
    """What is written holds nothing that somebody could still change: all came from a decoder or is shared already."""

    @property
    def moment(self) -> str:
        """`now` as it is written into objects."""
        if not self._moment:
            self._moment = format_time(self.now)
        return self._moment

    def option(self, name: str, default: str = "") -> str:
        values = self.query.get(name)
        return values[0] if values else default

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    async def work(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a pure function of what this request is about: beside the event loop, if that is large."""
        if self.size < LARGE:
            return function(*args, **kwargs)
        return await self.worker.run(self.size, function, *args, **kwargs)

    def sent(self, obj: dict[str, Any], kind: str, api_version: str) -> None:
        """This is what came in the body, decoded and with its defaults: for the audit log."""
        if self.audit is None:
            return
        emptied = [(part, name) for part, name in self.emptied if part.get(name) is None]
        for part, name in emptied:
            part[name] = []
        self.audit.sent(obj, kind, api_version)
        for part, name in emptied:
            part[name] = None

    def context(self) -> Context:
        """What a kind's hooks may know."""
        return Context(
            now=self.now,
            user=self.user,
            namespace=self.target.namespace,
            subresource=self.target.subresource,
            dry_run=self.dry_run,
            warn=self.warn,
            emptied=self.emptied,
        )


def names_revision(call: Call) -> bool:
    """Return whether this is a read that says how old its answer may be."""
    return call.verb in READS and call.option("resourceVersion") != ""
