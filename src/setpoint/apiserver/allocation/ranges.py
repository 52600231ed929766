"""A range of numbers of which the lower part is kept for those who ask for a certain one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from setpoint.meta.clock import Ids

_PROBES = 16
_SHORTEST_IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Bands:
    """`[first, last]`; automatic choices begin at `first + static` and go below only when nothing else is left."""

    first: int
    last: int
    static: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def choose(self, ids: Ids, taken: Callable[[int], bool], all_taken: Callable[[], Collection[int]]) -> int | None:
        """A free number, from a random place on; None: there is none. `all_taken` is asked only in a crowded range."""
        divide = self.first + self.static
        for low, high in ((divide, self.last), (self.first, divide - 1)):
            if low > high:
                continue
            start = low + ids.below(high - low + 1)
            for number in _circle(low, high, start, _PROBES):
                if not taken(number):
                    return number
            used = all_taken()
            # Among so many neighbours one must be free.
            for number in _circle(low, high, start, len(used) + 1):
                if number not in used:
                    return number
        return None


def _circle(low: int, high: int, start: int, steps: int) -> Iterator[int]:
    yield from range(start, min(high + 1, start + steps))
    yield from range(low, min(start, low + steps - (high + 1 - start)))


def port_bands(low: int, high: int) -> Bands:
    return Bands(low, high, _static(high - low + 1, 16, 128, 32))


def _static(size: int, least: int, most: int, step: int) -> int:
    return 0 if size <= least else min(max(size // step, least), most)


@dataclass(frozen=True, slots=True)
class AddressRange:
    network: IPv4Network | IPv6Network
    bands: Bands
    """Of the addresses as numbers."""

    @property
    def family(self) -> str:
        return f"IPv{self.network.version}"

    def address(self, number: int) -> str:
        return str(IPv4Address(number) if self.network.version == 4 else IPv6Address(number))


def address_range(cidr: str) -> AddressRange | None:
    """None for networks that no address is taken from."""
    network = ip_network(cidr, strict=False)
    if network.version == 6 and network.prefixlen < _SHORTEST_IPV6_PREFIX:
        return None
    # The network's own address is never used, nor is IPv4's broadcast address.
    first, last = int(network.network_address) + 1, int(network.broadcast_address)
    if network.version == 4:
        last -= 1
    static = _static(network.num_addresses, 16, 256, 16)
    return AddressRange(network, Bands(first, last, static))
