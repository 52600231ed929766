from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Typed
from local_server import LocalServer


@pytest.fixture
def typed(local_server: LocalServer, tmp_path: Path) -> Typed:
    """`await typed("get pods")`: a command line against a server in this process."""
    return Typed(local_server, tmp_path)
