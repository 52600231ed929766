"""Delays the answers to wrong codes of a class.

The right code is always accepted, at once, so that a guesser keeps no learner out: neither from another address nor
from the same one, which a whole classroom may share. The length of the code makes guessing infeasible, not a limit. It
has 50 bits: 10,000 guesses a second for 24 hours succeed with a probability of 8.64e8 / 2**50, less than one in a
million.

The delay of wrong answers protects the processor of the machine: each connection of a guesser then makes one guess a
second.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.meta.errors import TooManyRequests
from setpoint.meta.token_bucket import TokenBucket

_BURST, _RATE = 20, 0.5
"""Number of wrong codes of one address, and number in a second from then on, that are answered at once."""
DELAY: Final = 1.0
"""Seconds until a further wrong code is answered."""
MAX_DELAYED: Final = 256
"""Number of answers that are delayed at the same time, for all addresses together."""
MAX_ADDRESSES: Final = 1_024
"""Number of addresses that are remembered; those that sent a wrong code least recently are forgotten."""


class WrongCodes:
    """Counts the wrong codes of each address, and delays their answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()
        """The addresses, the one that sent a wrong code least recently first."""
        self._delayed = 0

    async def delay(self, address: str) -> None:
        """Return when a wrong code from this address may be answered. Raises TooManyRequests if too many answers are
        delayed."""
        if self._bucket(address).try_take():
            return
        if self._delayed >= MAX_DELAYED:
            raise TooManyRequests.of("Too many codes were wrong. Wait a few seconds and try again.", 5)
        self._delayed += 1
        try:
            await self._clock.sleep(DELAY)
        finally:
            self._delayed -= 1

    def _bucket(self, address: str) -> TokenBucket:
        network = _network(address)
        found = self._addresses.get(network)
        if found is None:
            found = self._addresses[network] = TokenBucket(self._clock, _RATE, _BURST)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(network)
        return found


def _network(address: str) -> str:
    """Return what belongs to one client: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
    return str(found)
