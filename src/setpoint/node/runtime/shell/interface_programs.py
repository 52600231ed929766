"""`ip`, `ifconfig`, `route` and `hostname`: the Pod's own address, and where it leads."""

from __future__ import annotations

from setpoint.node.runtime.shell.session import Program, Session, Streams

_CHANGES = ("add", "del", "delete", "set", "change", "replace", "flush", "up", "down")


def _gateway(address: str) -> str:
    return address.rpartition(".")[0] + ".1"


def _ip(session: Session, arguments: list[str], streams: Streams) -> int:
    """Changes need rights that containers have not."""
    words = [each for each in arguments if not each.startswith("-")]
    if any(each in _CHANGES for each in words):
        if not session.files.user.privileged:
            streams.err("ip: RTNETLINK answers: Operation not permitted\n")
            return 2
        return 0
    address, what = session.network.address, words[0] if words else ""
    if "route".startswith(what) and what:
        streams.out(f"default via {_gateway(address)} dev eth0 \n")
    elif "address".startswith(what) and what:
        streams.out(
            "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000\n    inet 127.0.0.1/8 scope host lo\n"
            "       valid_lft forever preferred_lft forever\n"
            "2: eth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP,M-DOWN> mtu 1500 qdisc noqueue \n"
            f"    inet {address}/24 brd {address.rpartition('.')[0]}.255 scope global eth0\n"
            "       valid_lft forever preferred_lft forever\n"
        )
    elif "link".startswith(what) and what:
        streams.out(
            "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000\n"
            "2: eth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP,M-DOWN> mtu 1500 qdisc noqueue \n"
        )
    else:
        streams.err("Usage: ip [OPTIONS] address|route|link [ARGS]\n")
        return 1
    return 0


def _ifconfig(session: Session, arguments: list[str], streams: Streams) -> int:
    if len(arguments) > 1:
        streams.err("ifconfig: SIOCSIFADDR: Operation not permitted\n")
        return 1
    address = session.network.address
    streams.out(
        f"eth0      Link encap:Ethernet\n          inet addr:{address}  Bcast:{address.rpartition('.')[0]}.255"
        "  Mask:255.255.255.0\n          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n"
        "lo        Link encap:Local Loopback\n          inet addr:127.0.0.1  Mask:255.0.0.0\n"
        "          UP LOOPBACK RUNNING  MTU:65536  Metric:1\n\n"
    )
    return 0


def _route(session: Session, arguments: list[str], streams: Streams) -> int:
    if any(each in ("add", "del") for each in arguments):
        streams.err("route: SIOCADDRT: Operation not permitted\n")
        return 1
    streams.out(
        "Kernel IP routing table\n"
        "Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n"
        f"default         {_gateway(session.network.address):<15} 0.0.0.0         UG    0      0        0 eth0\n"
    )
    return 0


def _hostname(session: Session, arguments: list[str], streams: Streams) -> int:
    if any(each in ("-i", "-I", "--ip-address") for each in arguments):
        streams.out(f"{session.network.address}\n")
    elif arguments and not arguments[0].startswith("-"):
        streams.err("hostname: sethostname: Operation not permitted\n")
        return 1
    else:
        streams.out(f"{session.hostname}\n")
    return 0


INTERFACE_PROGRAMS: dict[str, Program] = {"ip": _ip, "ifconfig": _ifconfig, "route": _route, "hostname": _hostname}
