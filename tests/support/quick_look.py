"""Looks at a cluster until something is there, without starting a program for every look."""

from __future__ import annotations

import json
import ssl
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class QuickLook:
    def __init__(self, kubeconfig: Path) -> None:
        """As the administrator, whose certificate is in the kubeconfig."""
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as shown:
            for part in ("client-certificate-data", "client-key-data"):
                shown.write(b64decode(user[part]) + b"\n")
            shown.flush()
            context.load_cert_chain(shown.name)
        self._connection = HTTPSConnection(urlsplit(cluster["server"]).netloc, context=context, timeout=10)

    def at(self, path: str) -> dict[str, Any]:
        """What is there; empty if nothing is."""
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
        except (OSError, HTTPException):  # it was closed, for nothing was asked for long
            self._connection.close()
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
        body = answer.read()
        return json.loads(body) if answer.status == 200 else {}

    def until(self, path: str, check: Callable[[dict[str, Any]], Any], seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not check(found := self.at(path)):
            assert time.monotonic() < deadline, f"{path} did not come to that: {found}"
            time.sleep(0.05)
