"""What the doors of a node need to know of what is behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from setpoint.node.runtime.interface import ContainerLog, Execution, Usage
from setpoint.node.runtime.network import Failure
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

Obj = Mapping[str, Any]


class ProbeCount(NamedTuple):
    """How often one probe of a container has run, by its results."""

    container: str
    kind: str
    failed: int
    successful: int


class NodeHost(Protocol):
    """One or many nodes. Pods come as the agent knows them: with the status that it reports."""

    def pod(self, namespace: str, name: str) -> Obj | None: ...

    def pods_on(self, node: str) -> Sequence[Obj]: ...

    def node(self, name: str) -> Obj | None: ...

    def log_of(self, pod: Obj, container: str, container_id: str) -> ContainerLog:
        """Of the run with this id. Raises NoSuchContainer."""
        ...

    def command_problem(self, argv: Sequence[str]) -> str:
        """Why there is no such program; empty: there is."""
        ...

    async def prepare(self, pod: Obj, argv: Sequence[str]) -> None:
        """Whatever takes a while and is to be there when the command runs."""
        ...

    def run_command(self, pod: Obj, container: str, argv: Sequence[str], *, stdin: bool) -> Execution:
        """Raises NoSuchContainer if the container does not run."""
        ...

    def main_program(self, pod: Obj, container: str) -> tuple[Sequence[str], Execution] | None:
        """What a container runs that reads what somebody types, by its words and as it is; None: it does not read."""
        ...

    def listens(self, pod: Obj, port: int) -> bool:
        """Return whether something in the Pod listens on the TCP port."""
        ...

    def deliver(self, pod: Obj, request: WebRequest) -> WebAnswer | Failure:
        """Return what the server at a port of the Pod answers, or why it does not."""
        ...

    def usage(self, pod: Obj) -> Mapping[str, Usage]:
        """Of its running containers, by name."""
        ...

    def probe_counts(self, pod: Obj) -> Sequence[ProbeCount]: ...
