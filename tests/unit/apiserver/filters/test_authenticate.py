"""Who may come in without saying who they are."""

from __future__ import annotations

import pytest

from setpoint.apiserver.filters.authenticate import ANONYMOUS, AuthenticatorChain
from setpoint.apiserver.http.message import Peer, Request
from setpoint.meta.errors import Unauthorized


def test_health_needs_no_credentials_even_where_nobody_is_anonymous() -> None:
    chain = AuthenticatorChain((), anonymous=False)
    for path in ("/healthz", "/livez", "/readyz"):
        request = Request("GET", path, "", {}, b"", Peer())
        assert chain.authenticate(request, []) is ANONYMOUS
    with pytest.raises(Unauthorized):
        chain.authenticate(Request("GET", "/healthz/etcd", "", {}, b"", Peer()), [])
