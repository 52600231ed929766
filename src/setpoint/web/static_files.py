"""The built files of the page, served from a directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from setpoint.wire.message import Request, Response

STATIC: Final = Path(__file__).parent / "static"
"""The files that the package contains."""
NONCE_PLACEHOLDER: Final = b"__CSP_NONCE__"
"""The text in the document that is replaced by the nonce of its Content-Security-Policy."""
_INDEX: Final = "index.html"
_ROOT, _CLASS_ROOT = b'<html lang="en">', b'<html lang="en" data-class>'
"""The root element of the document, and that of the document of a class."""
_NAME = re.compile(r"/((?:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}/){0,4}[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127})")
_ASSETS: Final = "assets/"
"""The folder of files whose names contain a hash of their content."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
}
_COMPRESSED: Final = (("br", ".br"), ("gzip", ".gz"))
"""The content encodings and the suffixes of the files that have them, the best first."""
_MAX_SIZE: Final = 8 * 1024 * 1024
_NO_STORE: Final = ("Cache-Control", "no-store")
_IMMUTABLE: Final = ("Cache-Control", "public, max-age=31536000, immutable")
_NOT_BUILT: Final = (
    b"The page is not built: its files are missing. Build it as page/README.md in the repository says, or install the "
    b"package.\n"
)


class StaticFiles:
    """Serves the files of a directory. They are read when they are requested, and may be replaced at any time."""

    def __init__(self, directory: Path, nonce: Callable[[], str], *, of_class: bool = False) -> None:
        """`nonce` returns a new unguessable text. With `of_class`, the document says that a class can be joined here,
        which the page needs to know before there is a session."""
        self._of_class = of_class
        self._directory = directory.absolute()
        self._nonce = nonce

    def answer(self, request: Request) -> tuple[Response, str]:
        """Return the response to a GET or HEAD, without the headers that all responses have, and the nonce of the
        document; empty for other files."""
        name = _INDEX if request.path == "/" else _file_name(request.path)
        path = self._directory / name
        if name == _INDEX:
            return self._document(path)
        if not name or name.endswith(tuple(suffix for _, suffix in _COMPRESSED)) or not self._is_within(path):
            return _missing(), ""
        headers = [
            ("Content-Type", _TYPES.get(path.suffix, "application/octet-stream")),
            _IMMUTABLE if name.startswith(_ASSETS) else _NO_STORE,
            ("Vary", "Accept-Encoding"),
        ]
        for encoding, suffix in _COMPRESSED:
            if _accepts(request, encoding):
                found = _read(path.with_name(path.name + suffix))
                if found is not None:
                    return Response(200, found, [*headers, ("Content-Encoding", encoding)]), ""
        found = _read(path)
        return (Response(200, found, headers) if found is not None else _missing()), ""

    def _document(self, path: Path) -> tuple[Response, str]:
        content = _read(path)
        if content is None:
            return Response(503, _NOT_BUILT, [("Content-Type", _TYPES[".txt"]), _NO_STORE]), ""
        nonce = self._nonce()
        body = content.replace(NONCE_PLACEHOLDER, nonce.encode())
        if self._of_class:
            body = body.replace(_ROOT, _CLASS_ROOT, 1)
        return Response(200, body, [("Content-Type", _TYPES[".html"]), _NO_STORE]), nonce

    def _is_within(self, path: Path) -> bool:
        """Return whether a path is below the directory, also after symbolic links."""
        return path.resolve().is_relative_to(self._directory.resolve())


def _file_name(path: str) -> str:
    """Return the relative name of a file, or an empty text for a path that no file can have."""
    found = _NAME.fullmatch(path)
    return found[1] if found is not None else ""


def _accepts(request: Request, encoding: str) -> bool:
    offered = request.headers.get("accept-encoding", "")[:1024].split(",")
    return any(each.strip() == encoding for each in offered)


def _read(path: Path) -> bytes | None:
    """Return the content of a file; None if it is none, or too large to be one of the page."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_SIZE:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _missing() -> Response:
    return Response(404, b"There is no such file.\n", [("Content-Type", _TYPES[".txt"]), _NO_STORE])
