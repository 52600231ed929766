"""A `setpoint up` in a process of its own with its page, and requests to its API server from synchronous tests."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

STATIC = Path(__file__).parents[2] / "src" / "setpoint" / "web" / "static"
_READY = " is ready at "


def page_files() -> Path | None:
    """The built page: that of SETPOINT_PAGE_FILES, or the committed one; None if there is none."""
    directory = Path(os.environ.get("SETPOINT_PAGE_FILES") or STATIC)
    return directory if (directory / "index.html").is_file() else None


class PageCluster:
    """The cluster; its objects are in memory unless `flags` name a store."""

    def __init__(self, directory: Path, files: Path, *flags: str) -> None:
        self._directory = directory
        self._files = files
        self._flags = flags if "--store" in flags else ("--store", "memory", *flags)
        self._process: subprocess.Popen[str] | None = None
        self._first_link = ""
        self._connection = http.client.HTTPSConnection("127.0.0.1")
        self._page_port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._page_port}"

    @property
    def data_directory(self) -> Path:
        return self._directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    def start(self) -> None:
        """Start it, again on the same port of the page if it was stopped, and wait until it is ready."""
        command = [sys.executable, "-m", "setpoint", "up", "--port", "0", "--data-dir", "data"]
        command += ["--page-port", str(self._page_port), "--page-files", str(self._files.absolute()), *self._flags]
        with open(self._directory / "log", "ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._directory)
        self._process = process
        assert process.stdout is not None
        for line in process.stdout:
            if _READY in line:
                break
        else:
            raise RuntimeError((self._directory / "log").read_text())
        self._first_link = (self.data_directory / "page").read_text(encoding="ascii").strip()
        self._page_port = urlsplit(self._first_link).port or 0
        self._read_kubeconfig()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def new_link(self) -> str:
        """A link that lets one browser in."""
        link, self._first_link = self._first_link, ""
        return link or str(self.api("POST", "/setpoint/v1/page/codes")["link"])

    def revoke(self) -> None:
        self.api("DELETE", "/setpoint/v1/page/sessions")

    def _read_kubeconfig(self) -> None:
        found = yaml.safe_load((self.data_directory / "admin.kubeconfig").read_text())
        cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        authority = b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        pair = self._directory / "admin.pem"
        pair.write_bytes(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
        tls.load_cert_chain(pair)
        server = urlsplit(cluster["server"])
        self._connection.close()
        self._connection = http.client.HTTPSConnection(str(server.hostname), server.port, context=tls, timeout=30)

    def api(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """The answer of the API server to the administrator. Raises RuntimeError with its message."""
        data = None if body is None else json.dumps(body).encode()
        for last in (False, True):
            try:
                self._connection.request(method, path, data, {"Content-Type": content_type})
                answer = self._connection.getresponse()
                break
            except (OSError, http.client.HTTPException):
                self._connection.close()  # the server has closed an idle connection, or was restarted
                if last:
                    raise
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {text.decode(errors='replace')}")
        return json.loads(text) if text else None

    def create(self, path: str, obj: dict[str, Any], *, kind_within: float = 0.0) -> Any:
        """Create an object. A kind that was defined just now is tried again for so many seconds."""
        deadline = time.monotonic() + kind_within
        while True:
            try:
                return self.api("POST", path, obj)
            except RuntimeError as error:
                if "404 page not found" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def create_deployment(self, name: str, replicas: int, namespace: str = "default", image: str = "nginx") -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.create(path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})

    def pod_names(self, label: str, namespace: str = "default", at_least: int = 0) -> list[str]:
        """The names of the Pods with a label, as soon as there are so many."""
        deadline = time.monotonic() + 30
        while True:
            found = self.api("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={label}")
            names = [each["metadata"]["name"] for each in found["items"]]
            if len(names) >= at_least:
                return names
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(names)} Pods of {at_least} exist: {names}")
            time.sleep(0.05)

    def ready_pods(self, label: str) -> list[str]:
        """The names of the Pods with a label that are ready and not being deleted."""
        found = self.api("GET", f"/api/v1/namespaces/default/pods?labelSelector={label}")["items"]
        return [
            pod["metadata"]["name"]
            for pod in found
            if not pod["metadata"].get("deletionTimestamp")
            and any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
            )
        ]
