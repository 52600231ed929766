"""What runs containers, as the agent of a node sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

Obj = dict[str, Any]


@dataclass(slots=True)
class ContainerReport:
    """One container as it is. Running: started and not finished."""

    name: str
    image: str
    image_id: str = ""
    container_id: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int = 0
    restarts: int = 0

    @property
    def running(self) -> bool:
        return self.started_at is not None and self.finished_at is None


@dataclass(slots=True)
class PodReport:
    init_containers: list[ContainerReport] = field(default_factory=list)
    containers: list[ContainerReport] = field(default_factory=list)


class Runtime(Protocol):
    """Pods are known by their uid. Every call may be made again at any time and then finds its work done."""

    async def start(self, pod: Mapping[str, Any]) -> None:
        """Containers that outlived the agent are found again rather than started twice."""
        ...

    async def stop(self, pod: Mapping[str, Any], grace_seconds: float) -> None:
        """Returns when nothing of the Pod runs any more; `status` still reports how it ended."""
        ...

    def status(self, uid: str) -> PodReport | None:
        """None for a Pod that was not started."""
        ...

    def forget(self, uid: str) -> None:
        """The Pod is gone for good."""
        ...

    def running(self) -> Sequence[str]:
        """The uids of all Pods with anything running."""
        ...
