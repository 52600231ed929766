"""Operations on the members of etcd from a machine that has a member, whether it runs or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from setpoint.cluster.config import ConfigError
from setpoint.cluster.etcd_joining import remove_member
from setpoint.cluster.etcd_member import MemberRecord, answers, member_certificates, member_tls
from setpoint.meta.clock import Clock
from setpoint.store.etcd.client import EtcdClient
from setpoint.store.etcd.membership import Member, Membership, removal_problem
from setpoint.store.interface import StoreError
from setpoint.tasks import run_all

T = TypeVar("T")


class KnownMember(NamedTuple):
    member: Member
    is_healthy: bool
    """Whether it answers."""
    is_own: bool
    """Whether it is the member of this machine."""


class EtcdMembers:
    def __init__(self, directory: Path, record: MemberRecord, clock: Clock) -> None:
        """`directory` is the data directory of this machine."""
        self._record = record
        self._clock = clock
        self._tls = member_tls(member_certificates(directory / "pki", record, clock), clock)

    async def known(self) -> list[KnownMember]:
        """Return the members in the order of their names. Raises ConfigError."""
        record = self._record
        members = await self._using([*record.servers, record.local_url], Membership.members)
        healthy = await run_all(*(self._is_healthy(one) for one in members))
        found = [
            KnownMember(one, answered, record.peer_url in one.peer_urls)
            for one, answered in zip(members, healthy, strict=True)
        ]
        return sorted(found, key=lambda one: one.member.name)

    async def others_that_answer(self) -> list[str]:
        """Return the URLs of the members of other machines, as they were last known, that answer."""
        urls = self._record.servers
        answered = await run_all(*(answers(EtcdClient([url], self._tls)) for url in urls))
        return [url for url, is_healthy in zip(urls, answered, strict=True) if is_healthy]

    async def remove(
        self, target: KnownMember, known: Sequence[KnownMember], *, force: bool = False, otherwise: str = ""
    ) -> None:
        """Remove a member through the others. Raises ConfigError if they would lose their quorum, unless forced;
        `otherwise` continues the message with another way out."""
        healthy = {one.member.id for one in known if one.is_healthy}
        problem = removal_problem([one.member for one in known], target.member, healthy)
        if problem and not force:
            raise ConfigError(
                f"the member {shown_name(target.member)} is not removed: {problem}. "
                f"Start the other machines first{otherwise}"
            )
        through = [one.member for one in known if one.is_healthy and one.member.id != target.member.id]
        urls = [url for member in through if not member.is_learner for url in member.client_urls]
        if not urls:
            raise ConfigError(f"the member {shown_name(target.member)} is not removed: no other member answers")
        await self._using(urls, lambda membership: remove_member(membership, target.member.id, self._clock))

    async def _is_healthy(self, member: Member) -> bool:
        return bool(member.client_urls) and await answers(EtcdClient(member.client_urls, self._tls))

    async def _using(self, urls: Sequence[str], call: Callable[[Membership], Awaitable[T]]) -> T:
        client = EtcdClient(urls, self._tls)
        try:
            return await call(Membership(client))
        except StoreError as error:
            raise ConfigError(str(error)) from None
        finally:
            client.close()


def shown_name(member: Member) -> str:
    """Return the name of a member, or its URL if it has never started."""
    return member.name or member.peer_urls[0]
