"""A DNS client for tests, by an implementation that shares no code with the server's."""

from __future__ import annotations

from dataclasses import dataclass

import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype


@dataclass(frozen=True, slots=True)
class Found:
    """An answer as text. The records of each section are sorted."""

    rcode: str
    answers: tuple[str, ...] = ()
    authority: tuple[str, ...] = ()
    additional: tuple[str, ...] = ()
    flags: str = ""

    @property
    def data(self) -> list[str]:
        """The data of the answers."""
        return [line.split(" ", 4)[4] for line in self.answers]


def shown(message: dns.message.Message) -> Found:
    def lines(section: list[dns.rrset.RRset]) -> tuple[str, ...]:
        return tuple(sorted(line for each in section for line in each.to_text().splitlines()))

    return Found(
        dns.rcode.to_text(message.rcode()),
        lines(message.answer),
        lines(message.authority),
        lines(message.additional),
        dns.flags.to_text(message.flags),
    )


async def look_up(
    name: str, kind: str, address: str, port: int, *, tcp: bool = False, edns: int | None = None, timeout: float = 5.0
) -> Found:
    """Send a query, with EDNS and this UDP size if it is given. Does not repeat truncated answers over TCP."""
    query = dns.message.make_query(name, kind)
    if edns is not None:
        query.use_edns(0, payload=edns)
    send = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
    return shown(await send(query, address, port=port, timeout=timeout))
