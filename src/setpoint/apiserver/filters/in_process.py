"""Components in the server's own process say who they are, and are believed.

They say it where no request from the wire can: not in a header but on the peer, an object that the wire makes itself
for each connection and on which it never puts this.
"""

from __future__ import annotations

from setpoint.apiserver.filters.authenticate import with_everybody
from setpoint.apiserver.http.message import Peer, Request
from setpoint.kinds.strategy import UserInfo

_ATTRIBUTE = "user within the process"


def peer_of(user: str, groups: tuple[str, ...]) -> Peer:
    """The other end of a connection that is none, in the name of a user."""
    return Peer("127.0.0.1", attributes={_ATTRIBUTE: UserInfo(user, groups=with_everybody(user, groups))})


class InProcessAuthenticator:
    def authenticate(self, request: Request) -> UserInfo | None:
        user = request.peer.attributes.get(_ATTRIBUTE)
        return user if isinstance(user, UserInfo) else None
