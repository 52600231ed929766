"""Messages of the kernel about network interfaces."""

from __future__ import annotations

import struct

from setpoint.node.host.network.link_events import changed_interfaces

NEW_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 20, 24


def message(kind: int, body: int, *attributes: tuple[int, bytes]) -> bytes:
    content = bytes(body)
    for number, value in attributes:
        content += struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(content), kind, 0, 0, 0) + content


def test_names_of_interfaces_are_found() -> None:
    block = (
        message(NEW_LINK, 16, (1, b"x"), (3, b"eth0\0"))
        + message(NEW_ROUTE, 12, (3, b"no"))
        + message(NEW_ADDRESS, 8, (1, bytes(4)), (3, b"veth12\0"))
        + message(NEW_ADDRESS, 8, (1, bytes(16)))
        + message(NEW_LINK, 16)
    )
    assert list(changed_interfaces(block)) == ["eth0", "veth12", ""]


def test_damaged_messages_end_the_search() -> None:
    whole = message(NEW_LINK, 16, (3, b"eth0\0"))
    assert list(changed_interfaces(whole[:-1])) == []
    assert list(changed_interfaces(struct.pack("=IHHII", 0, NEW_LINK, 0, 0, 0))) == []
    assert list(changed_interfaces(message(NEW_LINK, 16) + b"\x01")) == [""]
    zero = message(NEW_LINK, 16, (3, b"eth0"))
    broken = zero[:32] + struct.pack("=HH", 0, 1) + zero[36:]
    assert list(changed_interfaces(broken)) == [""]
