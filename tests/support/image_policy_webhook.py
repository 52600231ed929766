"""An ImagePolicyWebhook server and an API server that calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from server_harness import ServerHarness
from token_issuer import JSON, Network

from setpoint.apiserver.remote_servers import RemoteServer
from setpoint.meta.objects import Obj
from setpoint.wire.message import Request, Response

ALLOWED = {"allowed": True}
HOST = "images.example"


class ImageHook:
    """Answers with `status`, or with the response `raw` if it is set."""

    def __init__(self) -> None:
        self.status: Any = dict(ALLOWED)
        self.raw: Response | None = None
        self.asked: list[Request] = []

    @property
    def specs(self) -> list[Obj]:
        return [orjson.loads(request.body)["spec"] for request in self.asked]

    def answer(self, server: RemoteServer, request: Request) -> Response:
        return self.respond(request)

    def respond(self, request: Request) -> Response:
        self.asked.append(request)
        if self.raw is not None:
            return self.raw
        review = {"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": self.status}
        return Response(200, orjson.dumps(review), list(JSON))


def kubeconfig(path: Path, server: str = f"https://{HOST}/review", *, authority: str = "", **user: str) -> str:
    cluster = {"server": server, **({"certificate-authority": authority} if authority else {})}
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_bytes(orjson.dumps(content))
    return str(path)


def admission_file(path: Path, settings: Any) -> str:
    plugin = {"name": "ImagePolicyWebhook", "configuration": {"imagePolicy": settings}}
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    path.write_bytes(orjson.dumps(kind | {"plugins": [plugin]}))
    return str(path)


@asynccontextmanager
async def judged(
    tmp_path: Path, opening: Callable[..., Any] = ServerHarness.open, **settings: Any
) -> AsyncIterator[tuple[Any, ImageHook]]:
    """An API server whose images are judged."""
    network, hook = Network(), ImageHook()
    network.hosts[HOST] = hook.answer
    settings.setdefault("kubeConfigFile", kubeconfig(tmp_path / "hook.json"))
    file = admission_file(tmp_path / "admission.json", settings)
    harness = await opening(
        servers=network, admission_control_config_file=file, enable_admission_plugins=["ImagePolicyWebhook"]
    )
    try:
        yield harness, hook
    finally:
        await harness.close()
