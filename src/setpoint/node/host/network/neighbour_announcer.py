"""Announces addresses on the network segments of a node: answers ARP requests and IPv6 neighbour solicitations.

The addresses are not assigned to an interface, so that programs of the node are not reachable at them, and nothing is
left behind when the agent ends. The packet rules of Services translate the packets that arrive.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

log = logging.getLogger("setpoint.node.network")

_REPETITIONS: Final = 5
"""How often an address is announced after it was taken over, because announcements may be lost."""
_MAX_BURST: Final = 64
"""Packets that are handled before other work of the event loop may run."""

# ARP, RFC 826.
_ETH_P_ARP: Final = 0x0806
_ARP: Final = struct.Struct("!HHBBH6s4s6s4s")
_ETHERNET, _IPV4 = 1, 0x0800
_REQUEST, _REPLY = 1, 2
_BROADCAST, _ANY_MAC = b"\xff" * 6, bytes(6)

# Neighbour discovery, RFC 4861.
_SOLICITATION, _ADVERTISEMENT = 135, 136
_SOLICITED, _OVERRIDE = 0x40000000, 0x20000000
_TARGET_LINK_ADDRESS: Final = 2
_ND_LENGTH: Final = 24
_ALL_NODES: Final = "ff02::1"
_HOP_LIMIT: Final = 255
_ICMP6_FILTER: Final = 1


class Interface(NamedTuple):
    """A network interface of the machine."""

    name: str
    mac: bytes
    number: int
    """The index that the kernel has given it; another interface of the same name has another one."""


def arp_packet(operation: int, mac: bytes, address: bytes, target_mac: bytes, target: bytes) -> bytes:
    return _ARP.pack(_ETHERNET, _IPV4, 6, 4, operation, mac, address, target_mac, target)


def gratuitous_arp(mac: bytes, address: str) -> list[bytes]:
    """Return the packets that announce an address to all machines of the segment; some accept requests only."""
    own = ip_address(address).packed
    return [arp_packet(_REQUEST, mac, own, _ANY_MAC, own), arp_packet(_REPLY, mac, own, _BROADCAST, own)]


def arp_answer(packet: bytes, mac: bytes, addresses: Mapping[bytes, str]) -> tuple[bytes, bytes] | None:
    """Return the answer to a request for one of the addresses, and the hardware address that it is sent to."""
    if len(packet) < _ARP.size:
        return None
    *kind, operation, source_mac, source, _, target = _ARP.unpack_from(packet)
    if kind != [_ETHERNET, _IPV4, 6, 4] or operation != _REQUEST or target not in addresses or source == target:
        return None
    return arp_packet(_REPLY, mac, target, source_mac, source), source_mac


def advertisement(mac: bytes, address: bytes, *, solicited: bool) -> bytes:
    """Return a neighbour advertisement without its checksum, which the kernel computes."""
    flags = _OVERRIDE | (_SOLICITED if solicited else 0)
    return (
        struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, flags) + address + struct.pack("!BB", _TARGET_LINK_ADDRESS, 1) + mac
    )


def solicited_node(address: str) -> bytes:
    """Return the multicast group to which solicitations for an address are sent."""
    return IPv6Address("ff02::1:ff00:0").packed[:13] + ip_address(address).packed[13:]


class _Segment:
    """The sockets of one interface."""

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self.addresses: dict[bytes, str] = {}
        """The addresses that are answered for, by their octets."""
        self._arp: socket.socket | None = None
        self._ndp: socket.socket | None = None
        self._conflicts: set[str] = set()

    def add(self, address: str) -> None:
        """Answer for an address. Raise OSError."""
        found = ip_address(address)
        if found.version == 4:
            self._open_arp()
        else:
            self._membership(self._open_ndp(), address, socket.IPV6_JOIN_GROUP)
        self.addresses[found.packed] = address

    def remove(self, address: str) -> None:
        self.addresses.pop(ip_address(address).packed, None)
        self._conflicts.discard(address)
        if ":" in address and self._ndp is not None:
            groups = {solicited_node(each) for each in self.addresses.values() if ":" in each}
            if solicited_node(address) not in groups:
                self._membership(self._ndp, address, socket.IPV6_LEAVE_GROUP)

    def announce(self, address: str) -> None:
        """Announce to all machines of the segment that this one has the address."""
        name, mac, number = self.interface
        try:
            if ":" not in address:
                for packet in gratuitous_arp(mac, address):
                    self._open_arp().sendto(packet, (name, _ETH_P_ARP, 0, 0, _BROADCAST))
                return
            packet = advertisement(mac, ip_address(address).packed, solicited=False)
            self._open_ndp().sendto(packet, (_ALL_NODES, 0, 0, number))
        except OSError as error:
            log.warning("cannot announce %s on %s: %s", address, name, error.strerror)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (self._arp, self._ndp):
            if each is not None:
                loop.remove_reader(each)
                each.close()
        self._arp = self._ndp = None

    def _membership(self, channel: socket.socket, address: str, option: int) -> None:
        request = solicited_node(address) + struct.pack("@I", self.interface.number)
        try:
            channel.setsockopt(socket.IPPROTO_IPV6, option, request)
        except OSError as error:
            # Addresses with the same last three octets share a group.
            log.debug("multicast group of %s on %s: %s", address, self.interface.name, error.strerror)

    def _open_arp(self) -> socket.socket:
        if self._arp is None:
            channel = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ARP))
            try:
                channel.setblocking(False)
                channel.bind((self.interface.name, _ETH_P_ARP))
                asyncio.get_running_loop().add_reader(channel, self._receive_arp, channel)
            except OSError:
                channel.close()
                raise
            self._arp = channel
        return self._arp

    def _open_ndp(self) -> socket.socket:
        if self._ndp is None:
            channel = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
            try:
                channel.setblocking(False)
                # A set bit blocks the type of message.
                blocked = (1 << 256) - 1 ^ 1 << _SOLICITATION
                words = struct.pack("=8I", *(blocked >> 32 * i & 0xFFFFFFFF for i in range(8)))
                channel.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, words)
                name = self.interface.name.encode() + b"\0"
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
                for option in (socket.IPV6_MULTICAST_HOPS, socket.IPV6_UNICAST_HOPS):
                    channel.setsockopt(socket.IPPROTO_IPV6, option, _HOP_LIMIT)
                channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self.interface.number)
                channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
                asyncio.get_running_loop().add_reader(channel, self._receive_ndp, channel)
            except OSError:
                channel.close()
                raise
            self._ndp = channel
        return self._ndp

    def _receive_arp(self, channel: socket.socket) -> None:
        try:
            for _ in range(_MAX_BURST):
                packet = channel.recv(1024)
                answer = arp_answer(packet, self.interface.mac, self.addresses)
                if answer is not None:
                    channel.sendto(answer[0], (self.interface.name, _ETH_P_ARP, 0, 0, answer[1]))
                else:
                    self._detect_conflict(packet)
        except BlockingIOError:
            return
        except OSError as error:
            log.debug("ARP on %s: %s", self.interface.name, error.strerror)

    def _detect_conflict(self, packet: bytes) -> None:
        if len(packet) < _ARP.size:
            return
        *_, mac, source, _, _ = _ARP.unpack_from(packet)
        address = self.addresses.get(source)
        if address is not None and mac != self.interface.mac and address not in self._conflicts:
            self._conflicts.add(address)
            log.warning("%s is also announced by the machine with the address %s", address, mac.hex(":"))

    def _receive_ndp(self, channel: socket.socket) -> None:
        try:
            for _ in range(_MAX_BURST):
                packet, ancillary, _, source = channel.recvmsg(1024, 64)
                hops = [data for level, kind, data in ancillary if kind == socket.IPV6_HOPLIMIT]
                # Packets that were forwarded by a router have a smaller limit.
                if len(packet) < _ND_LENGTH or not hops or struct.unpack("@i", hops[0])[0] != _HOP_LIMIT:
                    continue
                target = packet[8:_ND_LENGTH]
                if target not in self.addresses:
                    continue
                known = not IPv6Address(source[0].partition("%")[0]).is_unspecified
                answer = advertisement(self.interface.mac, target, solicited=known)
                channel.sendto(answer, source if known else (_ALL_NODES, 0, 0, self.interface.number))
        except BlockingIOError:
            return
        except OSError as error:
            log.debug("neighbour discovery on %s: %s", self.interface.name, error.strerror)


class NeighbourAnnouncer:
    """Announces addresses, each on one interface. Uses the network namespace in which the sockets are made."""

    def __init__(self) -> None:
        self._segments: dict[Interface, _Segment] = {}
        self._announced: dict[str, tuple[Interface, str]] = {}
        """The interface of each address, and the term in which it is announced."""
        self._remaining: dict[str, int] = {}
        """How often addresses that were taken over will be announced again."""

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses that this machine answers for."""
        return frozenset(self._announced)

    @property
    def is_repeating(self) -> bool:
        """Whether `repeat` has something to announce."""
        return bool(self._remaining)

    def update(self, desired: Mapping[str, Interface], term: str = "") -> list[str]:
        """Answer for these addresses and no others, announce new ones, and return a sentence for each failure. All
        addresses are announced again if `term` is another one than before."""
        problems = []
        for address, (interface, _) in list(self._announced.items()):
            if desired.get(address) != interface:
                self._withdraw(address)
        for address, interface in desired.items():
            if self._announced.get(address) == (interface, term):
                continue
            try:
                segment = self._segments.get(interface)
                if segment is None:
                    segment = self._segments[interface] = _Segment(interface)
                if address not in self._announced:
                    segment.add(address)
                    log.info("this node announces %s on %s", address, interface.name)
            except OSError as error:
                problems.append(f"cannot announce {address} on {interface.name}: {error.strerror}")
                continue
            self._announced[address] = (interface, term)
            self._remaining[address] = _REPETITIONS
        self.repeat()
        return problems

    def repeat(self) -> None:
        """Announce the addresses that were taken over recently."""
        for address, count in list(self._remaining.items()):
            self._segments[self._announced[address][0]].announce(address)
            if count > 1:
                self._remaining[address] = count - 1
            else:
                del self._remaining[address]

    def close(self) -> None:
        for address in list(self._announced):
            self._withdraw(address)

    def _withdraw(self, address: str) -> None:
        interface, _ = self._announced.pop(address)
        self._remaining.pop(address, None)
        segment = self._segments[interface]
        segment.remove(address)
        if not segment.addresses:
            segment.close()
            del self._segments[interface]
