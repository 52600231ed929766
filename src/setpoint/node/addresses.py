"""Addresses that a fleet hands out: one for each node and one for each Pod."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address

PODS = IPv4Network("10.244.0.0/14")
NODES = IPv4Network("172.30.0.0/16")


class AddressPool:
    """Goes round: an address that became free is handed out again as late as possible."""

    def __init__(self, network: IPv4Network | IPv6Network) -> None:
        self._network = network
        self._next = 1
        self._holders: dict[str, str] = {}
        self._held: dict[str, str] = {}

    def take(self, holder: str, wanted: str = "") -> str:
        """The holder's address: the one it has, the one it wants if that is free, or the next."""
        if holder in self._held:
            return self._held[holder]
        if wanted and wanted not in self._holders:
            return self._give(holder, wanted)
        usable = self._network.num_addresses - 2
        if len(self._holders) >= usable:
            raise RuntimeError(f"no address is left in {self._network}")
        while True:
            address = str(self._network.network_address + self._next)
            self._next = self._next % usable + 1
            if address not in self._holders:
                return self._give(holder, address)

    def holds(self, address: str) -> bool:
        return ip_address(address) in self._network

    def release(self, holder: str) -> None:
        address = self._held.pop(holder, None)
        if address is not None:
            del self._holders[address]

    def _give(self, holder: str, address: str) -> str:
        self._held[holder] = address
        self._holders[address] = holder
        return address
