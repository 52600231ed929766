"""Scenarios for `setpoint why`: people and clients of a virtual cluster, and answers with stable names and times."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson

from setpoint.apiserver.filters.authenticate import authenticated_peer
from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run_within
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.kubeconfig import Access
from setpoint.cluster.components import MASTERS
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cause import CAUSE_HEADER
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster

_DURATION = r"(?:\d+[dhms]){1,2}"
_STABLE: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d UTC"), "TIME"),
    (re.compile(rf"\b{_DURATION} ago\b"), "AGE ago"),
    (re.compile(rf"\bfor {_DURATION}\b"), "for AGE"),
    (re.compile(r" +rev \d+"), ""),
    (re.compile(r"setpoint undo \d+"), "setpoint undo REVISION"),
    (re.compile(r"\b\d+\.\d s before"), "SECONDS s before"),
    (re.compile(r"\brevision \d+"), "revision N"),
    (re.compile(r"(?<=[a-z0-9])-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "-XXXXX"),
    (re.compile(r"\bnode-\d\b"), "node-N"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"highest score, \d+"), "highest score, S"),
    (re.compile(r"(latest: |<- )\d+ "), r"\1N "),
]


class World:
    """A cluster, its users, and the answers that they were given."""

    def __init__(self, cluster: VirtualCluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home
        self.answers: list[str] = []
        self.alice = self.user("alice")
        self._names: dict[str, str] = {}

    def user(
        self, name: str, agent: str = "kubectl", groups: tuple[str, ...] = (MASTERS,), address: str = ""
    ) -> Client:
        """Return the client of a person, or of a program that is not a part of the cluster; with an `address`, of one
        whose requests come from there over a network."""
        clients = self.cluster.embedded.components.clients
        if not address:
            return clients.copying_client(name, groups, agent=agent)
        peer = authenticated_peer(UserInfo(name, groups=(*groups, "system:authenticated")), address, address)
        transport = InProcessTransport(clients._server.for_peer(peer))
        return Client(transport, self.cluster.clock, user_agent=f"{agent}/v1")

    def name(self, obj: Obj | str, stable: str) -> str:
        """Give an object with a generated name a stable one in the answers; return its name."""
        found = obj if isinstance(obj, str) else str(obj["metadata"]["name"])
        self._names[found] = stable
        return found

    async def pods(self, app: str, namespace: str = "default") -> list[Obj]:
        """Return the Pods of an application by age, and name them in this order."""
        found = await self.cluster.all(("v1", "Pod"), namespace, f"app={app}")
        found.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        for pod in found:
            name = pod["metadata"]["name"]
            known = [each for each in self._names.values() if each.startswith(f"{app}-pod-")]
            self._names.setdefault(name, f"{app}-pod-{len(known) + 1}")
        for each in await self.cluster.all(("apps/v1", "ReplicaSet"), namespace, f"app={app}"):
            known = [one for one in self._names.values() if one.startswith(f"{app}-rs-")]
            self._names.setdefault(each["metadata"]["name"], f"{app}-rs-{len(known) + 1}")
        return found

    async def why(self, line: str, client: Client | None = None) -> str:
        """Type `setpoint why ...` as an administrator, or as another user, and remember the answer."""
        code, out, err = await self.typed(f"why {line}", client)
        text = self.stable(out + (f"error ({code}): {err}" if code else ""))
        if not code and " -o " not in line:
            code, out, _ = await self.typed(f"why {line} -o json", client)
            assert code == 0
            check_answer(orjson.loads(out))
        self.answers.append(f"$ setpoint why {self.stable(line)}\n{text}")
        return text

    async def typed(self, line: str, client: Client | None = None) -> tuple[int, str, str]:
        """Run a command line, and return its exit code and what it prints."""
        who = client or self.cluster.client
        connect: Callable[[Access, float], Client] = lambda *_: who  # noqa: E731
        out, err = BytesIO(), BytesIO()
        io = CommandIO(
            stdin=BytesIO(),
            stdout=out,
            stderr=err,
            environment={"HOME": str(self.home)},
            home=self.home,
            clock=self.cluster.clock,
            connect=connect,
        )
        code = await run_within(["--server", "https://local", *shlex.split(line)], io)
        return code, out.getvalue().decode(), err.getvalue().decode()

    async def asked(self, **query: str) -> dict[str, Any]:
        """Return the answer of the endpoint as JSON."""
        joined = "&".join(f"{name}={value}" for name, value in query.items())
        reply = await self.cluster.client.sender.request("GET", "/setpoint/v1/why", joined)
        found: dict[str, Any] = orjson.loads(reply.body)
        return found

    async def create_with(self, client: Client, claim: str, obj: Obj, **more: str) -> None:
        """Create an object of the core group with a header that names a cause, as a program without the SDK does, and
        more headers."""
        transport, namespace = client.sender.transport, obj["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/{obj['kind'].lower()}s"
        headers = [
            ("content-type", "application/json"),
            ("user-agent", client.sender.user_agent),
            (CAUSE_HEADER, claim),
            *more.items(),
        ]
        reply = await transport.request("POST", path, "", headers, orjson.dumps(obj))
        assert reply.status == 201, reply.body

    def stable(self, text: str) -> str:
        """Replace generated names, times and revisions."""
        for found in sorted(self._names, key=len, reverse=True):
            text = text.replace(found, self._names[found])
        for pattern, replacement in _STABLE:
            text = pattern.sub(replacement, text)
        return "\n".join(line.rstrip() for line in text.split("\n"))


# -- the answer as JSON ------------------------------------------------------------------------------------------------

STEP: dict[str, type] = {
    **dict.fromkeys(("revision", "at", "triggers", "times"), int),
    **dict.fromkeys(("actor", "object", "namespace", "action", "reason", "kind", "inferred", "run", "trace"), str),
    **dict.fromkeys(("address", "link", "controller", "reconciled", "besides", "via"), str),
    **dict.fromkeys(("changes", "others"), list),
    "completes": bool,
}
FINDING: dict[str, type] = {"rule": str, "sentence": str, "evidence": list, "until": str, "help": list}
LOG: dict[str, type] = {**dict.fromkeys(("namespace", "pod", "container"), str), "previous": bool, "lines": list}
ANSWER: dict[str, type] = {
    **dict.fromkeys(("version", "now"), int),
    **dict.fromkeys(("sentence", "origin", "cluster"), str),
    **dict.fromkeys(("chain", "earlier", "findings", "notes", "hints"), list),
    "question": dict,
}


def check_answer(document: dict[str, Any]) -> None:
    """Check that an answer has exactly the documented fields, with values of their types."""
    assert {name: type(value) for name, value in document.items()} == ANSWER
    assert document["version"] == 1 and document["sentence"].endswith((".", "..."))
    steps = [*document["chain"], *document["earlier"]]
    while steps:
        step = steps.pop()
        assert {name: type(value) for name, value in step.items()} == STEP
        assert step["kind"] in ("write", "hidden") and all(isinstance(each, str) for each in step["changes"])
        steps += step["others"]
    for finding in document["findings"]:
        log = finding.pop("log")
        assert log is None or {name: type(value) for name, value in log.items()} == LOG
        assert {name: type(value) for name, value in finding.items()} == FINDING
        assert all(isinstance(each, str) for each in (*finding["evidence"], *finding["help"]))
    assert all(isinstance(each, str) for each in (*document["notes"], *document["hints"]))


# -- objects -----------------------------------------------------------------------------------------------------------


def pod(name: str, **spec: Any) -> Obj:
    """Return a Pod; `annotations` and `labels` are its metadata, the rest of the arguments its spec."""
    meta: Obj = {"name": name, "namespace": "default", "labels": spec.pop("labels", {"app": name})}
    if annotations := spec.pop("annotations", None):
        meta["annotations"] = annotations
    if finalizers := spec.pop("finalizers", None):
        meta["finalizers"] = finalizers
    container = {"name": "app", "image": spec.pop("image", "nginx:1.27"), **spec.pop("container", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def workload(kind: str, name: str, replicas: int = 3, **more: Any) -> Obj:
    """Return a Deployment, ReplicaSet, StatefulSet or DaemonSet; `template` and `container` extend its Pods."""
    container = {"name": "app", "image": more.pop("image", "nginx:1.27"), **more.pop("container", {})}
    template_meta = {"labels": {"app": name}, **more.pop("template_metadata", {})}
    spec: Obj = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": template_meta, "spec": {"containers": [container], **more.pop("template", {})}},
    }
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    namespace = more.pop("namespace", "default")
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, **more},
    }


def job(name: str, *command_exit: int, **more: Any) -> Obj:
    """Return a Job whose command exits with this code."""
    command = {"command": ["sh", "-c", f"exit {command_exit[0]}"]} if command_exit else {}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "busybox", **command}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **more},
    }


def plain(api_version: str, kind: str, name: str, namespace: str = "default", **content: Any) -> Obj:
    """Return an object of any kind."""
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**meta, **content.pop("metadata", {})}, **content}


async def changed(client: Client, obj: Mapping[str, Any], change: Callable[[Obj], Any]) -> Obj:
    """Read an object, change it and write it."""
    meta = obj["metadata"]
    found = await client.get((obj["apiVersion"], obj["kind"]), meta["name"], meta.get("namespace", ""))
    change(found)
    return await client.update(found)
