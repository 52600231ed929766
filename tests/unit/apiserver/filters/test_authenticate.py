"""Requests without credentials."""

from __future__ import annotations

import pytest

from setpoint.apiserver.filters.authenticate import ANONYMOUS, AuthenticatorChain
from setpoint.meta.errors import Unauthorized
from setpoint.wire.message import Peer, Request


def test_health_checks_need_no_credentials_even_without_anonymous_access() -> None:
    chain = AuthenticatorChain((), anonymous=False)
    for path in ("/healthz", "/livez", "/readyz"):
        request = Request("GET", path, "", {}, b"", Peer())
        assert chain.authenticate(request, print) is ANONYMOUS
    with pytest.raises(Unauthorized):
        chain.authenticate(Request("GET", "/healthz/etcd", "", {}, b"", Peer()), print)
