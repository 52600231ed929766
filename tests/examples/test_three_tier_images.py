"""The registry that serves the images of the example."""

from __future__ import annotations

import socket
import threading
import urllib.request
from pathlib import Path

from examples.three_tier.build_images import MANIFEST, serve


def test_registry(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / digest.replace(":", "-")).write_bytes(b"{}")
    with serve(tmp_path, {"web:1": digest}, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            host, port = "127.0.0.1", server.server_address[1]
            with urllib.request.urlopen(f"http://{host}:{port}/v2/web/manifests/1", timeout=5) as answer:
                assert answer.headers["Content-Type"] == MANIFEST and answer.read() == b"{}"
            # A client that tries TLS must see that this is HTTP.
            with socket.create_connection((host, port), timeout=5) as client:
                client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n")
                assert client.recv(100).startswith(b"HTTP/1.1 400 ")
        finally:
            server.shutdown()
