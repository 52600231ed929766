"""Checks of requests before anything else happens, and the security headers of all responses.

Another website in the same browser, or a name that resolves to this machine (DNS rebinding), must neither read nor
change anything. There are no cookies, so that a request without the key of a session has no rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from setpoint.wire.message import Request, Response

_FEATURES: Final = """
    accelerometer autoplay browsing-topics camera display-capture encrypted-media fullscreen gamepad geolocation
    gyroscope hid identity-credentials-get idle-detection keyboard-map local-fonts magnetometer microphone midi
    otp-credentials payment picture-in-picture publickey-credentials-create publickey-credentials-get screen-wake-lock
    serial storage-access sync-xhr usb window-management xr-spatial-tracking
"""
"""Features of browsers that the page does not need. Browsers warn of names that they do not know."""
_HEADERS: Final = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", ", ".join(f"{feature}=()" for feature in _FEATURES.split())),
]
_TLS_ONLY: Final = ("Strict-Transport-Security", "max-age=31536000")
_OWN_SITES: Final = ("same-origin", "none")


def content_security_policy(nonce: str = "") -> str:
    """Return the policy; style elements of the document may have the nonce."""
    style = f"style-src 'self' 'nonce-{nonce}'" if nonce else "style-src 'self'"
    return (
        f"default-src 'none'; script-src 'self'; {style}; connect-src 'self'; img-src 'self' data:; font-src 'none'; "
        "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


class RequestChecks:
    """The hosts and origins of one page server. They come from its configuration, never from a request."""

    def __init__(self, hosts: Iterable[str], *, tls: bool) -> None:
        """`hosts` are the exact values that the Host header may have, such as `127.0.0.1:6444`."""
        scheme = "https" if tls else "http"
        self._origins = {host: f"{scheme}://{host}" for host in hosts}
        self._tls = tls

    def is_for_us(self, request: Request) -> bool:
        """Return whether the Host header is exactly one of the allowed ones."""
        hosts = request.header_values("host")
        return len(hosts) == 1 and hosts[0] in self._origins

    def is_from_the_page(self, request: Request) -> bool:
        """Return whether a browser says that the request was made by this page."""
        origins = request.header_values("origin")
        own = self._origins.get(request.headers.get("host", ""))
        return len(origins) == 1 and origins[0] == own and _is_own_site(request)

    def may_read_session(self, request: Request) -> bool:
        """Return whether a GET with a key may be made. Browsers send no Origin with a GET of the page itself, but they
        send one, or name the site, with that of another."""
        return self.is_from_the_page(request) if "origin" in request.headers else _is_own_site(request)

    def may_read_files(self, request: Request) -> bool:
        """Return whether the files may be read: by the page, by a person who follows a link, or by a program."""
        if _is_own_site(request):
            return True
        headers = request.headers
        return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"

    def secured(self, response: Response, nonce: str = "") -> Response:
        """Return the response with the headers that all responses have."""
        headers = [("Content-Security-Policy", content_security_policy(nonce)), *_HEADERS]
        if self._tls:
            headers.append(_TLS_ONLY)
        if not any(name == "Cache-Control" for name, _ in response.headers):
            headers.append(("Cache-Control", "no-store"))
        response.headers = [*response.headers, *headers]
        return response


def _is_own_site(request: Request) -> bool:
    return request.headers.get("sec-fetch-site", "none") in _OWN_SITES
