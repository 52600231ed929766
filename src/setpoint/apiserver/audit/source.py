"""Where a request came from: through which proxies, by which client. All but the last address is what somebody said."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from setpoint.apiserver.http.message import Request
from setpoint.meta.memoize import memoized

_LONGEST_AGENT = 1024
_CUT = "...TRUNCATED"
_MOST_PROXIES = 100
"""Addresses of a X-Forwarded-For header that are looked at."""


def source_ips(request: Request) -> list[str]:
    headers, found = request.headers, list[str]()
    if "x-forwarded-for" not in headers and "x-real-ip" not in headers:
        remote = _address(request.peer.address)
        return [remote] if remote else []
    forwarded = headers.get("x-forwarded-for")
    if forwarded:
        if "x-forwarded-for" in request.repeated:
            forwarded = request.repeated["x-forwarded-for"][0]
        parts = forwarded.split(",", _MOST_PROXIES)[:_MOST_PROXIES]
        found = [ip for ip in (_address(part.strip()) for part in parts) if ip]
    real = headers.get("x-real-ip")
    if real:
        ip = _address(request.repeated.get("x-real-ip", [real])[0])
        if ip and ip not in found:
            found.append(ip)
    remote = _address(request.peer.address)
    if remote and found[-1:] != [remote]:
        found.append(remote)
    return found


def user_agent(request: Request) -> str:
    agent = request.headers.get("user-agent", "")
    return agent if len(agent) <= _LONGEST_AGENT else agent[:_LONGEST_AGENT] + _CUT


@memoized(maxsize=1024)
def _address(text: str) -> str:
    """As it is written, or nothing."""
    if not text or "%" in text:
        return ""
    try:
        return _shown(ip_address(text))
    except ValueError:
        return _sloppy(text)


def _shown(ip: IPv4Address | IPv6Address) -> str:
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip)


def _sloppy(text: str) -> str:
    """Zeros in front of a part of an IPv4 address have never meant anything."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        return ""
    if max(map(int, parts)) > 255:
        return ""
    return ".".join(str(int(part)) for part in parts)
