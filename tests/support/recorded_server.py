"""Serves documents as they are given, so that kubectl prints exactly those: no defaults, no clock, no surprises."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Doc = dict[str, Any]


class Recorded:
    """`objects` and `tables` by path, as `/apis/example.com/v1/namespaces/default/things`; they may be changed while
    the server runs."""

    def __init__(self, resources: dict[str, list[Doc]]) -> None:
        self.resources = resources
        """By group and version, `v1` or `apps/v1`: the entries of the resource list."""
        self.objects: dict[str, Doc] = {}
        self.tables: dict[str, Doc] = {}
        self.kubeconfig = Path()

    def answer(self, path: str, as_table: bool) -> Doc | None:
        groups = [one.rpartition("/") for one in self.resources]
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [
                    {"name": group, "versions": [version], "preferredVersion": version}
                    for group, _, name in groups
                    if group
                    for version in [{"groupVersion": f"{group}/{name}", "version": name}]
                ],
            }
        for group_version, resources in self.resources.items():
            if path == ("/apis/" if "/" in group_version else "/api/") + group_version:
                return {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources}
        if as_table and path in self.tables:
            return self.tables[path]
        return self.objects.get(path)


def resource(plural: str, kind: str, namespaced: bool = True) -> Doc:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "namespaced": namespaced,
        "kind": kind,
        "verbs": ["get", "list", "create", "watch", "delete", "patch", "update"],
    }


@contextmanager
def serving(recorded: Recorded, folder: Path) -> Iterator[Recorded]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = recorded.answer(urlsplit(self.path).path, "as=Table" in self.headers.get("Accept", ""))
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(found or status).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    recorded.kubeconfig = folder / "recorded.kubeconfig"
    recorded.kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    try:
        yield recorded
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
