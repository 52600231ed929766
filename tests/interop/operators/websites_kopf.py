"""An operator written with kopf: a Website is a Deployment and a Service, in the colour of its theme. It knows nothing
of Setpoint; `kopf run` runs it against whatever cluster KUBECONFIG names."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import kopf
from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec, ServicePort, ServiceSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Service
from lightkube.types import PatchType

WEBSITES = "websites.shop.example.com"
Website = create_namespaced_resource("shop.example.com", "v1", "Website", "websites")


@kopf.on.login()
def login(**known: Any) -> Any:
    return kopf.login_with_kubeconfig(**known)


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    memo.client = AsyncClient(field_manager="websites")
    settings.posting.loggers = True
    settings.posting.level = logging.WARNING
    settings.batching.batch_window = 0.02
    settings.watching.server_timeout = 2  # watches end and begin again all the time
    settings.peering.name = "websites"
    settings.peering.mandatory = True
    settings.admission.managed = "websites.shop.example.com"
    folder = Path(os.environ["WEBHOOK_CERTIFICATES"])
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="localhost",
        certfile=folder / "apiserver.crt",
        pkeyfile=folder / "apiserver.key",
        cafile=folder / "ca.crt",
    )


@kopf.index("configmaps", labels={"shop.example.com/theme": kopf.PRESENT})
def themes(name: str, body: kopf.Body, **_: Any) -> dict[str, str]:
    return {name: body["data"]["color"]}


@kopf.on.mutate(WEBSITES, operations=["CREATE"])
def owned(spec: kopf.Spec, patch: kopf.Patch, userinfo: dict[str, Any], **_: Any) -> None:
    if "owner" not in spec:
        patch.spec["owner"] = userinfo["username"]


@kopf.on.validate(WEBSITES)
def affordable(spec: kopf.Spec, warnings: list[str], **_: Any) -> None:
    if spec["replicas"] > 100:
        raise kopf.AdmissionError(f"{spec['replicas']} replicas are too dear", code=403)
    if spec["replicas"] > 10:
        warnings.append("that will cost you")


@kopf.on.resume(WEBSITES)
@kopf.on.create(WEBSITES, backoff=0.1)
async def built(body: kopf.Body, name: str, memo: kopf.Memo, retry: int, reason: str, **_: Any) -> dict[str, Any]:
    if reason == "create" and not retry:
        raise kopf.TemporaryError("the bricks are late", delay=0.1)
    for child in children(body, name):
        await memo.client.apply(child, force=True)
    kopf.event(body, type="Normal", reason="Built", message=f"{name} stands")
    return {"image": body["spec"]["image"]}


@kopf.on.update(WEBSITES, field="spec.image")
@kopf.on.field(WEBSITES, field="spec.replicas")
async def rebuilt(body: kopf.Body, name: str, memo: kopf.Memo, patch: kopf.Patch, diff: kopf.Diff, **_: Any) -> None:
    patch.status["seen"] = [list(map(str, one)) for one in diff]
    for child in children(body, name):
        await memo.client.apply(child, force=True)


def children(body: kopf.Body, name: str) -> list[Any]:
    labels = {"website": name}
    container = Container(name="web", image=body["spec"]["image"])
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[container]))
    selector = LabelSelector(matchLabels=labels)
    deployment = DeploymentSpec(replicas=body["spec"]["replicas"], selector=selector, template=template)
    made: list[Any] = [
        Deployment(metadata=ObjectMeta(name=name), spec=deployment),
        Service(metadata=ObjectMeta(name=name), spec=ServiceSpec(selector=labels, ports=[ServicePort(port=80)])),
    ]
    documents = [one.to_dict() for one in made]
    kopf.adopt(documents, owner=body)
    kopf.label(documents, labels)
    return [type(one).from_dict(document) for one, document in zip(made, documents)]


@kopf.on.event("deployments", labels={"website": kopf.PRESENT})
async def counted(body: kopf.Body, labels: kopf.Labels, namespace: str, memo: kopf.Memo, type: str, **_: Any) -> None:
    """Reacts to a child: what runs is told in the parent's status."""
    if type == "DELETED":
        return
    ready = body["status"].get("readyReplicas", 0)
    phase = "Ready" if ready == body["spec"]["replicas"] else "Building"
    status = {"ready": ready, "phase": phase, "deployment": body["metadata"]["uid"]}
    try:
        await memo.client.patch(
            Website.Status, labels["website"], {"status": status}, namespace=namespace, patch_type=PatchType.MERGE
        )
    except ApiError as error:
        if error.status.code != 404:  # it is gone already
            raise


@kopf.timer(WEBSITES, interval=0.2, initial_delay=0.1)
def coloured(spec: kopf.Spec, status: kopf.Status, patch: kopf.Patch, themes: kopf.Index, **_: Any) -> None:
    found = [*themes.get(spec.get("theme"), []), "grey"]
    if status.get("color") != found[0]:
        patch.status["color"] = found[0]


@kopf.daemon(WEBSITES)
async def attended(stopped: kopf.DaemonStopped, patch: kopf.Patch, name: str, memo: kopf.Memo, **_: Any) -> None:
    """Lives as long as the Website does."""
    await stopped.wait()


@kopf.on.delete(WEBSITES)
async def demolished(name: str, namespace: str, memo: kopf.Memo, **_: Any) -> None:
    metadata = ObjectMeta(name=f"{name}-ruins", namespace=namespace)
    await memo.client.apply(ConfigMap(metadata=metadata, data={"gone": name}), force=True)
