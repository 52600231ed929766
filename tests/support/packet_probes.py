"""Real packets between Pods of a `network_lab`: TCP connections and UDP datagrams, all at once."""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from network_lab import Namespace
from policy_oracle import Packet

_MOST = 5.0
"""Seconds after which packets that should arrive have not."""
_LINGER = 0.2
"""Seconds in which packets that should not arrive may show that they do."""
_RESET = struct.pack("ii", 1, 0)


class Probes:
    """Listens in all namespaces, and sends packets between them."""

    def __init__(self, places: Mapping[str, Namespace], ports: Iterable[int]) -> None:
        """Listen on the ports in each namespace. `places` has the namespace of each address."""
        self._places = dict(places)
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._accepted: list[socket.socket] = []
        self._clients: dict[Packet, socket.socket] = {}
        """UDP sockets, which are used again: an allowed exchange must not allow later ones."""
        for space in {id(each): each for each in places.values()}.values():
            for port in ports:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    self._listen(space, kind, port)

    def _listen(self, space: Namespace, kind: int, port: int) -> None:
        listener = space.socket(socket.AF_INET6, kind)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", port))
        if kind == socket.SOCK_STREAM:
            listener.listen(256)
        self._sockets.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, kind)

    def send(self, packets: Iterable[Packet], expected: Mapping[Packet, bool]) -> dict[Packet, bool]:
        """Return which packets arrive and are answered. Waits long for those that should be, and briefly for others."""
        found = dict.fromkeys(packets, False)
        waiting = {packet for packet in found if expected[packet]}
        opened = [self._start(packet) for packet in found]
        deadline, lingering = time.monotonic() + _MOST, False
        while (left := deadline - time.monotonic()) > 0:
            if not waiting and not lingering:
                lingering, deadline = True, time.monotonic() + _LINGER
                continue
            for key, _ in self._selector.select(left):
                if isinstance(key.data, Packet):
                    self._answered(key.fileobj, key.data, found)
                    waiting.discard(key.data)
                else:
                    self._answer(key.fileobj, key.data)
        for each in opened:
            with suppress(KeyError):
                self._selector.unregister(each)
            if each.type == socket.SOCK_STREAM:
                _reset(each)
        for each in self._accepted:
            _reset(each)
        self._accepted.clear()
        return found

    def close(self) -> None:
        for each in (*self._sockets, *self._clients.values()):
            each.close()
        self._selector.close()

    def _start(self, packet: Packet) -> socket.socket:
        family = socket.AF_INET6 if ":" in packet.destination else socket.AF_INET
        if packet.protocol == "TCP":
            client = self._places[packet.source].socket(family, socket.SOCK_STREAM)
            with suppress(BlockingIOError):
                client.connect((packet.destination, packet.port))
            self._selector.register(client, selectors.EVENT_WRITE, packet)
            return client
        if packet not in self._clients:
            client = self._clients[packet] = self._places[packet.source].socket(family, socket.SOCK_DGRAM)
            client.connect((packet.destination, packet.port))
        client = self._clients[packet]
        with suppress(BlockingIOError):
            client.recv(16)  # An answer that was late.
        client.send(b"hello")
        self._selector.register(client, selectors.EVENT_READ, packet)
        return client

    def _answer(self, listener: object, kind: int) -> None:
        assert isinstance(listener, socket.socket)
        if kind == socket.SOCK_STREAM:
            self._accepted.append(listener.accept()[0])
        else:
            with suppress(OSError):
                content, source = listener.recvfrom(16)
                listener.sendto(content, source)

    def _answered(self, client: object, packet: Packet, found: dict[Packet, bool]) -> None:
        assert isinstance(client, socket.socket)
        self._selector.unregister(client)
        if packet.protocol == "UDP":
            found[packet] = client.recv(16) == b"hello"
        else:
            found[packet] = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNRESET)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
