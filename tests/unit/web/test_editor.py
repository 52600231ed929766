"""The conversation `editor` and the feed `yaml` of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conversations import TestConversation

from setpoint.client import Client
from setpoint.meta.errors import BadRequest, NotFound
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.feed import PageContext
from setpoint.web.feeds import editor, yaml
from setpoint.web.workspace import PART, Workspaces

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: nginx
        image: nginx
"""
WEB = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "default", "name": "web"}


class Editor:
    def __init__(self, conversation: TestConversation) -> None:
        self.conversation = conversation
        self._id = 0

    async def __call__(self, do: str, **message: Any) -> Any:
        self._id += 1
        number = self._id
        self.conversation.say({"id": number, "do": do, **message})
        await self.conversation.until(lambda: any(each["id"] == number for each in self.conversation.sent))
        return next(each for each in self.conversation.sent if each["id"] == number)

    async def problems(self, text: str) -> list[tuple[int, str]]:
        found = await self("check", text=text, namespace="default")
        return [(each["line"], each["message"]) for each in found["problems"]]


@asynccontextmanager
async def open_editor(cluster: VirtualCluster, client: Client | None = None) -> AsyncIterator[Editor]:
    conversation = TestConversation()
    parts = {PART: Workspaces()}
    context = PageContext(client or cluster.client, cluster.clock, "", "admin", "s", parts)
    async with child_tasks(editor.run(context, {}, conversation)):
        yield Editor(conversation)


@virtual(nodes=1)
async def test_problems_have_the_line_of_their_field(cluster: VirtualCluster) -> None:
    async with open_editor(cluster) as edit:
        assert await edit.problems(DEPLOYMENT) == []
        assert await edit.problems(DEPLOYMENT.replace("image:", "imge:")) == [
            (15, "unknown field spec.template.spec.containers[0].imge (did you mean image?)")
        ]
        assert await edit.problems(DEPLOYMENT.replace("replicas: 2", "replicas: two")) == [
            (6, "expected numeric (int or float), got string")
        ]
        found = await edit.problems(DEPLOYMENT.replace("labels: {app: web}", "labels: {app: wob}"))
        assert found[0][0] == 11 and "`selector` does not match template `labels`" in found[0][1]
        assert await edit.problems(DEPLOYMENT.replace("  replicas: 2", "  replicas: 2\n  replicas: 3")) == [
            (7, "spec.replicas is there twice")
        ]
        assert await edit.problems(DEPLOYMENT.replace("apps/v1", "apps/v9")) == [
            (2, "the server has no kind Deployment in apps/v9")
        ]
        assert (await edit.problems("a: [\n"))[0][0] == 2
        assert await edit.problems("- a\n") == [(1, "a manifest is a mapping with apiVersion, kind and metadata")]
        assert await edit.problems("kind: Pod\n") == [(1, "apiVersion is missing")]
        assert await edit.problems("# nothing\n") == []
        second = f"{DEPLOYMENT}---\n{DEPLOYMENT.replace('replicas: 2', 'replicas: -2')}"
        assert await edit.problems(second) == [(22, "Invalid value: -2: must be greater than or equal to 0")]
        assert not await cluster.find(("apps/v1", "Deployment"), "web")


@virtual(nodes=1)
async def test_a_check_shows_what_applying_would_do(cluster: VirtualCluster) -> None:
    async with open_editor(cluster) as edit:
        created = (await edit("check", text=DEPLOYMENT))["objects"][0]
        assert (created["outcome"], created["before"]) == ("created", "") and "replicas: 2" in created["after"]
        from setpoint.meta.body import parse_yaml

        obj = parse_yaml(DEPLOYMENT.encode())[0]
        obj["metadata"]["namespace"] = "default"
        await cluster.client.apply(obj, field_manager="kubectl")
        assert (await edit("check", text=DEPLOYMENT))["objects"][0]["outcome"] == "unchanged"
        scale = {**obj, "spec": {"replicas": 5}}
        await cluster.client.apply(scale, field_manager="autoscaler", force=True)
        found = await edit("check", text=DEPLOYMENT)
        assert found["objects"][0]["outcome"] == "changed"
        assert "replicas: 5" in found["objects"][0]["before"] and "replicas: 2" in found["objects"][0]["after"]
        (problem,) = found["problems"]
        assert problem["message"] == "spec.replicas belongs to autoscaler" and not problem["is_error"]
        assert problem["line"] == 6 and problem["manager"] == "autoscaler"


@virtual(nodes=1)
async def test_fields_and_their_documentation(cluster: VirtualCluster) -> None:
    async with open_editor(cluster) as edit:
        text = DEPLOYMENT + "        im"
        found = await edit("fields", text=text, line=16, column=11)
        names = [each["name"] for each in found["fields"]]
        assert found["typed"] == "im" and "imagePullPolicy" in names and "image" not in names
        policy = next(each for each in found["fields"] if each["name"] == "imagePullPolicy")
        assert policy["type"] == "string" and policy["values"] == ["Always", "IfNotPresent", "Never"]
        found = await edit("fields", text=f"{DEPLOYMENT}        imagePullPolicy: ", line=16, column=26)
        assert found["values"] == ["Always", "IfNotPresent", "Never"]
        assert (await edit("fields", text="", line=1, column=1))["fields"][0]["name"] == "apiVersion"
        assert (await edit("fields", text="kind: Nope\napiVersion: v1\nx", line=3, column=2))["fields"] == []
        found = await edit("describe", text=DEPLOYMENT, line=6, column=6)
        assert found["field"] == "spec.replicas" and found["about"]["type"] == "integer"
        assert "pods" in found["about"]["description"].lower()


@virtual(nodes=1)
async def test_files_of_the_workspace(cluster: VirtualCluster) -> None:
    async with open_editor(cluster) as edit:
        assert (await edit("read", path="web.yaml")) == {"id": 1, "text": "", "exists": False}
        assert (await edit("write", path="web.yaml", text="x"))["saved"]
        assert (await edit("read", path="/home/user/../user/web.yaml"))["text"] == "x"
        assert (await edit("files"))["files"] == [{"path": "web.yaml", "size": 1}]
        assert "is a directory" in (await edit("write", path="/home", text="x"))["error"]
        for number in range(4):
            last = await edit("write", path=f"f{number}", text="x" * 400_000)
        assert "no space left" in last["error"]
        assert "at most" in (await edit("write", path="big", text="x" * 600_000))["error"]
        assert "does not know" in (await edit("nothing"))["error"]
        assert "line and column" in (await edit("fields", text="", line=0, column=1))["error"]


@virtual(nodes=1)
async def test_an_object_is_saved_as_the_difference_of_two_texts(cluster: VirtualCluster) -> None:
    client = cluster.client
    async with open_editor(cluster) as edit:
        from setpoint.meta.body import parse_yaml

        obj = parse_yaml(DEPLOYMENT.encode())[0]
        obj["metadata"]["namespace"] = "default"
        await client.apply(obj, field_manager="kubectl")
        await cluster.settle()
        before = (await edit("object", object=WEB))["text"]
        assert "managedFields" not in before and "replicas: 2" in before

        after = before.replace("\n  replicas: 2", "\n  replicas: 3")
        assert (await edit("save", object=WEB, before=before, after=before))["outcome"] == "unchanged"
        tried = await edit("save", object=WEB, before=before, after=after, dryRun=True)
        assert (
            tried["outcome"] == "saved"
            and (await cluster.find(("apps/v1", "Deployment"), "web") or {})["spec"]["replicas"] == 2
        )
        wrong = await edit("save", object=WEB, before=before, after=after.replace("image:", "imge:"), dryRun=True)
        assert wrong["outcome"] == "refused" and "imge" in wrong["problems"][0]["message"], wrong
        assert wrong["problems"][0]["line"] == after.split("\n").index("      - image: nginx") + 1
        assert (await edit("save", object=WEB, before=before, after=after))["outcome"] == "saved"
        await cluster.settle()

        # Meanwhile only the status was written: that is no conflict.
        after2 = after.replace("replicas: 3", "replicas: 1", 1)
        version = (await client.get(("apps/v1", "Deployment"), "web", "default"))["metadata"]["resourceVersion"]
        before2 = (await edit("object", object=WEB))["text"]
        await cluster.client.patch(
            ("apps/v1", "Deployment"), "web", {"status": {"collisionCount": 1}}, "default", subresource="status"
        )
        assert version in before2
        after2 = before2.replace("\n  replicas: 3", "\n  replicas: 1", 1)
        assert (await edit("save", object=WEB, before=before2, after=after2))["outcome"] == "saved"

        # Another manager has changed the field: it is named, and only `takeOver` overwrites it.
        before3 = (await edit("object", object=WEB))["text"]
        scale = {"spec": {"replicas": 7}}
        await client.patch(("apps/v1", "Deployment"), "web", scale, "default", field_manager="autoscaler")
        after3 = before3.replace("\n  replicas: 1", "\n  replicas: 4", 1)
        found = await edit("save", object=WEB, before=before3, after=after3)
        assert found["outcome"] == "conflict"
        assert found["meanwhile"] == [
            {"field": "spec.replicas", "before": "1", "now": "7", "managers": ["autoscaler"], "also_mine": True}
        ]
        assert (await edit("save", object=WEB, before=before3, after=after3, takeOver=True))["outcome"] == "saved"
        assert (await client.get(("apps/v1", "Deployment"), "web", "default"))["spec"]["replicas"] == 4

        named = await edit("save", object=WEB, before=before3, after=before3.replace("name: web", "name: other", 1))
        assert "metadata" in named["error"] or "cannot be changed" in named["error"]
        await client.delete(("apps/v1", "Deployment"), "web", "default")
        await cluster.settle()
        assert (await edit("save", object=WEB, before=before3, after=after3))["outcome"] == "deleted"
        assert "not found" in (await edit("object", object=WEB))["error"]
        assert "must be given" in (await edit("object", object={}))["error"]


class Output:
    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.complete = False

    def set(self, key: str, item: Any) -> None:
        self.items[key] = item

    def remove(self, key: str) -> None:
        self.items.pop(key, None)

    def log(self, entry: Any) -> None:
        raise AssertionError

    def synced(self) -> None:
        self.complete = True


@virtual(nodes=1)
async def test_the_text_of_an_object_follows_its_changes(cluster: VirtualCluster) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "default"},
        "stringData": {"password": "hunter2"},
    }
    await cluster.client.create(secret, field_manager="ann")
    context = PageContext(cluster.client, cluster.clock, "", "admin", "")
    args = {"group": "", "version": "v1", "resource": "secrets", "namespace": "default", "name": "key"}
    hidden, shown = Output(), Output()
    async with child_tasks(yaml.run(context, args, hidden), yaml.run(context, {**args, "reveal": True}, shown)):
        await cluster.sleep(1)
        texts = [line[0] for line in hidden.items["object"]["lines"]]
        assert "  password: <hidden-1>" in texts and hidden.items["object"]["hidden"]
        assert not any("aHVudGVyMg" in text for text in texts)
        assert "  password: aHVudGVyMg==" in [line[0] for line in shown.items["object"]["lines"]]
        assert hidden.items["object"]["managers"][0]["name"] == "ann"
        await cluster.client.patch(("v1", "Secret"), "key", {"metadata": {"labels": {"a": "b"}}}, "default")
        await cluster.sleep(1)
        assert "    a: b" in [line[0] for line in hidden.items["object"]["lines"]]
        await cluster.client.delete(("v1", "Secret"), "key", "default")
        await cluster.sleep(1)
        assert hidden.items["object"] == {"exists": False}
    with pytest.raises(BadRequest):
        await yaml.run(context, {"resource": "pods"}, Output())
    with pytest.raises(NotFound):
        await yaml.run(context, {"resource": "nothings", "name": "x"}, Output())
