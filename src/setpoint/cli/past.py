"""Reads of the past: clients of the read-only server of a moment, `/at/<when>/` of a Setpoint API server."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.client import Client
from setpoint.client.past import PastClock, PastTransport
from setpoint.meta.moments import parse_moment


def path_segment(invocation: Invocation, moment: str) -> str:
    """Return a moment as a path segment. Times without a zone are local times here, and intervals end now, for all
    requests of the command. Raises Failed."""
    try:
        found = parse_moment(moment, invocation.io.clock.now().astimezone())
    except ValueError as error:
        raise Failed(str(error)) from None
    if isinstance(found, datetime):
        moment = found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return quote(moment, safe=":")


def past_client(invocation: Invocation, moment: str) -> tuple[Client, PastTransport]:
    """Return a client that reads the cluster as it was."""
    sender = invocation.client.sender
    transport = PastTransport(sender.transport, f"/at/{path_segment(invocation, moment)}")
    client = Client(
        transport,
        sender.clock,
        user_agent=sender.user_agent,
        impersonate=sender.impersonate,
        default_namespace=invocation.namespace,
        on_warning=sender.on_warning,
    )
    return client, transport


def read_at(invocation: Invocation, moment: str) -> None:
    """Let the command read the cluster as it was."""
    client, transport = past_client(invocation, moment)
    invocation.use(client)
    invocation.io.clock = PastClock(invocation.io.clock, transport)


async def revision_of(invocation: Invocation, moment: str) -> PastTransport:
    """Return the transport of a moment, whose revision is known. Raises ApiError."""
    client, transport = past_client(invocation, moment)
    await client.sender.request("GET", "/version")
    if not transport.revision:
        raise Failed("the server does not show the past: it is not a Setpoint API server, or an older one")
    return transport
