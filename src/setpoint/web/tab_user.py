"""The user as whom a tab acts: that of its session, or another one that this user impersonates ("see as").

A tab names the other user when it opens its WebSocket, so that all that it sends is sent as the same user. The API
server checks and audits the right to impersonate with every request; the page does not.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from setpoint.client import Client, Impersonation
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.web.sessions import PageUser

FEATURE: Final = "see-as"
"""The feature of a page whose tabs may act as another user."""
_USER, _GROUP = "as", "as-group"
"""Parameters of the address of the WebSocket; the second may be repeated."""
_MAX_GROUPS: Final = 32
_NAME = re.compile(r"[!-~](?:[ -~]{0,254}[!-~])?")
"""Names of users and groups that a header can carry: printable ASCII characters without blanks around them."""


class TabUser(NamedTuple):
    """The identity of a tab. Tabs with equal ones have equal rights, and may share what they receive."""

    user: PageUser
    """The user of the session."""
    seen_as: PageUser | None = None
    """The user whom the user of the session impersonates; None for none."""

    def act(self, client: Client) -> Client:
        """Return a client like `client`, which has the rights of the session's user, that impersonates the other one.
        Raises Forbidden if the client impersonates a user already."""
        other = self.seen_as
        if other is None:
            return client
        sender = client.sender
        if sender.impersonate is not None:
            raise Forbidden("this page acts for another user already, because its kubeconfig says so")
        # A client of its own rather than a named one: what the user of the session discovered is not shown to others.
        return Client(sender.transport, sender.clock, impersonate=Impersonation(other.name, groups=other.groups))


def seen_as(query: str) -> PageUser | None:
    """Return the user that the query of a WebSocket names; None if it names none. Raises BadRequest."""
    try:
        found = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=_MAX_GROUPS + 1)
    except ValueError:
        raise BadRequest("the query of the WebSocket is not valid") from None
    users = [value for name, value in found if name == _USER]
    groups = [value for name, value in found if name == _GROUP]
    if len(users) + len(groups) != len(found) or len(users) != bool(found):
        raise BadRequest(f"the query of the WebSocket may name one user ({_USER}) and their groups ({_GROUP})")
    if not all(map(_NAME.fullmatch, (*users, *groups))):
        raise BadRequest("names of users and groups have 1 to 256 printable ASCII characters")
    return PageUser(users[0], tuple(groups)) if users else None
