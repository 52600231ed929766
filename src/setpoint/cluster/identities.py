"""Who the components of one process are towards its API server."""

from __future__ import annotations

from collections.abc import Callable

from setpoint import __version__
from setpoint.apiserver.filters.in_process import peer_of
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport, SharingTransport
from setpoint.cluster.inprocess import InProcess
from setpoint.kinds.bootstrap.own_identities import FLEET
from setpoint.meta.clock import Clock

MASTERS = "system:masters"
ADDONS = "system:addons"
EVENT_READER = "system:event-reader"
STAGES = "system:stages"
"""Plays what the stages of a fleet say, and has the rights for that and no others."""

_MOST_CLIENTS = 65_536
"""Nodes come and go under ever new names; beyond so many clients, those that are needed are made anew."""

Wrap = Callable[[Client], Client]
"""Puts something between a component and the server: tests do."""


class Identities:
    """Clients in the names of the components of one process."""

    def __init__(self, entrance: InProcess, clock: Clock, wrap: Wrap | None = None) -> None:
        self._entrance = entrance
        self._clock = clock
        self._wrap = wrap
        self._clients: dict[str, Client] = {}

    def client(self, user: str, groups: tuple[str, ...] = (), *, agent: str) -> Client:
        found = self._clients.get(user)
        if found is None:
            found = self._client(SharingTransport, user, groups, agent)
            if self._wrap is not None:
                found = self._wrap(found)
            if len(self._clients) >= _MOST_CLIENTS:
                self._clients.clear()
            self._clients[user] = found
        return found

    def guest(self, user: str, groups: tuple[str, ...] = (), *, agent: str) -> Client:
        """For those who are no components: what they get is theirs alone, to do with it as they please."""
        return self._client(InProcessTransport, user, groups, agent)

    def _client(self, kind: type[InProcessTransport], user: str, groups: tuple[str, ...], agent: str) -> Client:
        transport = kind(self._entrance.for_peer(peer_of(user, groups)))
        return Client(transport, self._clock, user_agent=f"{agent}/v{__version__}")

    def controller_manager(self) -> Client:
        return self.client("system:kube-controller-manager", agent="kube-controller-manager")

    def controller(self, name: str) -> Client:
        """Each controller writes with the rights of its own service account."""
        namespace = "kube-system"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return self.client(f"system:serviceaccount:{namespace}:{name}", groups, agent="kube-controller-manager")

    def scheduler(self) -> Client:
        return self.client("system:kube-scheduler", agent="kube-scheduler")

    def fleet(self) -> Client:
        return self.client(FLEET, agent="kubelet")

    def stages(self) -> Client:
        return self.client(STAGES, agent="kubelet")

    def node(self, name: str) -> Client:
        return self.client(f"system:node:{name}", ("system:nodes",), agent="kubelet")

    def addons(self) -> Client:
        return self.client(ADDONS, agent="setpoint")
