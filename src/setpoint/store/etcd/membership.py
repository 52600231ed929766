"""The members of an etcd cluster: list, add, promote and remove them, and what is safe to do next.

A new member is added as a learner, which receives the log and has no vote, so a machine that never starts cannot cost
the cluster its quorum. It is promoted when it has caught up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, NamedTuple

from setpoint.store.etcd import messages
from setpoint.store.etcd.client import EtcdClient
from setpoint.store.interface import StoreError

_SERVICE = "/etcdserverpb.Cluster"
_NOT_IN_SYNC = "in sync with leader"
_TOO_MANY_LEARNERS = "too many learner members"
_NOT_FOUND = "member not found"
_NOT_A_LEARNER = "can only promote a learner member"


class LearnerExists(StoreError):
    """The cluster has a learner already; etcd allows one at a time."""


class NotInSync(StoreError):
    """The learner cannot be promoted yet, because it has not caught up with the leader."""


class Member(NamedTuple):
    id: int
    name: str
    """The name of the member; empty until it has started for the first time."""
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    """The URLs for clients; empty until it has started for the first time."""
    is_learner: bool

    @property
    def has_started(self) -> bool:
        return bool(self.name)


class Membership:
    """Calls of etcd's Cluster API."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def members(self) -> list[Member]:
        """Return the members as the connected one knows them, which needs no quorum. Raises StoreError."""
        answer = await self._client.call(
            f"{_SERVICE}/MemberList", messages.MemberListRequest(), messages.MembersResponse
        )
        return _members(answer)

    async def add_learner(self, peer_url: str) -> list[Member]:
        """Add a learner and return all members. Raises LearnerExists, StoreError."""
        request = messages.MemberAddRequest(peerURLs=[peer_url], isLearner=True)
        try:
            answer = await self._client.call(
                f"{_SERVICE}/MemberAdd", request, messages.MemberAddResponse, repeatable=False
            )
        except StoreError as error:
            if _TOO_MANY_LEARNERS in str(error):
                raise LearnerExists(str(error)) from None
            raise
        return _members(answer)

    async def promote(self, member: int) -> None:
        """Give a learner its vote; that it has one already is not an error. Raises NotInSync, StoreError."""
        request = messages.MemberPromoteRequest(ID=member)
        try:
            await self._client.call(f"{_SERVICE}/MemberPromote", request, messages.MembersResponse, repeatable=False)
        except StoreError as error:
            if _NOT_IN_SYNC in str(error):
                raise NotInSync(str(error)) from None
            if _NOT_A_LEARNER not in str(error):
                raise

    async def remove(self, member: int) -> None:
        """Remove a member; that it is gone already is not an error. Raises StoreError."""
        request = messages.MemberRemoveRequest(ID=member)
        try:
            await self._client.call(f"{_SERVICE}/MemberRemove", request, messages.MembersResponse, repeatable=False)
        except StoreError as error:
            if _NOT_FOUND not in str(error):
                raise


def _members(answer: Any) -> list[Member]:
    return [
        Member(one.ID, one.name, tuple(one.peerURLs), tuple(one.clientURLs), one.isLearner) for one in answer.members
    ]


# -- decisions --------------------------------------------------------------------------------------------------------


class Next(Enum):
    """The step that a machine without etcd data must take before its member can start."""

    ADD = "add it as a learner"
    START = "start the learner that was added and has never run"
    REPLACE = "remove the member whose data is lost, and add it again"


def next_step(members: Sequence[Member], peer_url: str) -> tuple[Next, int]:
    """Return what to do for the member with this URL, and its id; 0 if it is not a member yet.

    A member that has run and has lost its data must not run again under the same id: it has voted for, and
    acknowledged, what it no longer knows."""
    own = next((one for one in members if peer_url in one.peer_urls), None)
    if own is None:
        return Next.ADD, 0
    return (Next.REPLACE if own.has_started else Next.START), own.id


def initial_cluster(members: Sequence[Member], name: str, peer_url: str) -> str:
    """Return the value of `--initial-cluster` with which the member with this URL joins the others."""
    pairs = []
    for one in members:
        shown = name if peer_url in one.peer_urls else one.name
        pairs += [f"{shown}={url}" for url in one.peer_urls]
    return ",".join(pairs)


def removal_problem(members: Sequence[Member], member: Member, healthy: Collection[int]) -> str:
    """Return why removing the member would leave the others without a quorum; empty if it is safe.

    `healthy` are the ids of the members that answer."""
    others = [one for one in members if one.id != member.id and not one.is_learner]
    if member.is_learner:
        return ""
    if not others:
        return "it is the only member"
    alive, quorum = sum(one.id in healthy for one in others), len(others) // 2 + 1
    if alive >= quorum:
        return ""
    silent = ", ".join(one.name or one.peer_urls[0] for one in others if one.id not in healthy)
    return f"the remaining members need {quorum} of {len(others)} for a quorum, and {silent} cannot be reached"
