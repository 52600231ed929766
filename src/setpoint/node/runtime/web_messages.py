"""HTTP requests to simulated servers, and their answers."""

from __future__ import annotations

from typing import NamedTuple

TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"


class WebRequest(NamedTuple):
    port: int
    path: str = "/"
    query: str = ""
    method: str = "GET"
    tls: bool = False
    datagram: str | None = None
    """What is sent over UDP, where it is no HTTP request."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case. Only the API server looks at them."""


class WebAnswer(NamedTuple):
    status: int
    body: str
    content_type: str = TEXT
    delay: float = 0.0
    """Seconds that it takes its time; for those who can wait."""
