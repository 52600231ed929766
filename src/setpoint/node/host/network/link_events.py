"""Follows changes to the network interfaces of the machine, which the kernel reports by netlink."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger("setpoint.node.network")

# From linux/rtnetlink.h and linux/if_link.h.
_GROUPS: Final = 0x1 | 0x10 | 0x100
"""Groups of messages: links, and addresses of both families."""
_NEW_LINK, _DELETE_LINK = 16, 17
_NEW_ADDRESS, _DELETE_ADDRESS = 20, 21
_NAME: Final = 3
"""The attribute with the name of the interface, of links and of addresses."""
_HEADER: Final = 16
_BODY: Final = {_NEW_LINK: 16, _DELETE_LINK: 16, _NEW_ADDRESS: 8, _DELETE_ADDRESS: 8}
"""Lengths of the fixed part that follows the header, by the type of the message."""
_BUFFER: Final = 64 * 1024
_IGNORED: Final = ("veth", "lo")
"""Prefixes of interfaces that come and go with Pods."""


async def follow_link_changes(changed: Callable[[], None]) -> None:
    """Call `changed` whenever an interface of the machine, or an address of one, is added, changed or removed;
    interfaces of Pods do not count. Runs until cancelled; returns if the kernel does not report changes."""
    try:
        channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    except OSError as error:
        log.warning("changes of network interfaces are found late: %s", error.strerror)
        return
    with channel:
        channel.setblocking(False)
        channel.bind((0, _GROUPS))
        loop = asyncio.get_running_loop()
        while True:
            try:
                messages = await loop.sock_recv(channel, _BUFFER)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    log.warning("changes of network interfaces are found late: %s", error.strerror)
                    return
                changed()  # Messages were lost.
                continue
            if any(not name.startswith(_IGNORED) for name in changed_interfaces(messages)):
                changed()


def changed_interfaces(messages: bytes) -> Iterator[str]:
    """Yield the names of the interfaces that messages are about; that of a link without a name is empty."""
    position = 0
    while position + _HEADER <= len(messages):
        length, kind = struct.unpack_from("=IH", messages, position)
        if length < _HEADER or position + length > len(messages):
            return
        body = _BODY.get(kind)
        # Messages about addresses of IPv6 have no name, and those of Pods are too many to look at all of them.
        if body is not None:
            found = _name(messages[position + _HEADER + body : position + length])
            if found or kind in (_NEW_LINK, _DELETE_LINK):
                yield found
        position += (length + 3) & ~3


def _name(attributes: bytes) -> str:
    position = 0
    while position + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, position)
        if length < 4:
            return ""
        if kind == _NAME:
            return attributes[position + 4 : position + length].rstrip(b"\0").decode(errors="replace")
        position += (length + 3) & ~3
    return ""
