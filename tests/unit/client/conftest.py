from __future__ import annotations

import pytest
from local_server import TOKEN, LocalServer

from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport, SharingTransport


@pytest.fixture(params=[InProcessTransport, SharingTransport], ids=["private", "sharing"])
def client(request: pytest.FixtureRequest, local_server: LocalServer) -> Client:
    """The administrator, by each way within the process: nobody can tell them apart but by changing what is shared."""
    return Client(request.param(local_server.entrance, TOKEN), local_server.clock, user_agent="tests")
