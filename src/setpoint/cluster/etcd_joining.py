"""Adds the member of this machine to the etcd of other machines, as a learner, and removes members. Every step may be
repeated after a crash."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.store.etcd.membership import LearnerExists, Member, Membership, Next, next_step
from setpoint.store.interface import StoreError, Unavailable

log = logging.getLogger("setpoint.cluster")

_RETRY_INTERVAL: Final = 1.0
_ADD_TIMEOUT: Final = 120.0
"""Seconds to wait until etcd accepts a new member: it wants its other members to be connected."""
_LEARNER_TIMEOUT: Final = 30.0
"""Seconds after which the learner of another machine that does not answer counts as left behind."""
_REMOVE_TIMEOUT, _REMOVE_RETRY_INTERVAL = 30.0, 0.5
"""Seconds. etcd refuses changes of the membership until its members have been connected for five seconds."""


class AddressInUse(StoreError):
    """Another machine runs a member of etcd with the address of this one."""


Step = Callable[[str], None]
"""Callback that receives a description of the next step, for the terminal."""


async def become_member(
    membership: Membership,
    peer_url: str,
    answers: Callable[[Member], Awaitable[bool]],
    clock: Clock,
    step: Step,
) -> list[Member]:
    """Return the members after the one with this URL has become one of them, as a learner that has never run.

    etcd has at most one learner. One that was left behind by another machine, and does not answer, is removed. Raises
    AddressInUse, StoreError."""
    started = clock.monotonic()
    while True:
        waited = clock.monotonic() - started
        try:
            members = await membership.members()
            what, member = next_step(members, peer_url)
            if what is Next.START:
                return members
            if what is Next.REPLACE:
                # The member of this machine does not run now: another machine has, or claims, the same address.
                if running := [one for one in members if one.id == member and await answers(one)]:
                    raise AddressInUse(
                        f"{peer_url} belongs to the member {running[0].name}, which runs on another machine"
                    )
                step("etcd: remove the former member of this machine, whose data is lost")
                await membership.remove(member)
                continue
            return await membership.add_learner(peer_url)
        except LearnerExists:
            step("etcd: wait until the learner of another machine is promoted")
            other = next((one for one in members if one.is_learner), None)
            if other is not None and waited > _LEARNER_TIMEOUT:
                if await answers(other):
                    raise StoreError("another machine joins at the moment; repeat the command later") from None
                log.warning("removing the etcd learner %s, which was left behind", ",".join(other.peer_urls))
                await membership.remove(other.id)
                continue
        except Unavailable as error:
            if waited > _ADD_TIMEOUT:
                raise
            step(f"etcd: wait until it accepts a new member ({error})")
        await clock.sleep(_RETRY_INTERVAL)


async def remove_member(membership: Membership, member: int, clock: Clock) -> None:
    """Remove a member as soon as etcd accepts it. Raises Unavailable, StoreError."""
    deadline = clock.monotonic() + _REMOVE_TIMEOUT
    while True:
        try:
            return await membership.remove(member)
        except Unavailable:
            if clock.monotonic() > deadline:
                raise
        await clock.sleep(_REMOVE_RETRY_INTERVAL)
