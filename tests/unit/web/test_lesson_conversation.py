"""The conversation `lesson` and the feed `lessons`: a lesson in a fork of its own, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from conversations import TestConversation

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.request_context import RequestContext, parse_path, parse_query, verb_of
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.prefixed import PrefixedTransport
from setpoint.cluster.copy_source import CopySource
from setpoint.cluster.forks import Forks
from setpoint.cluster.inprocess import InProcess
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.system import RandomIds
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.course.course import new_lesson
from setpoint.view.course.progress import Progress
from setpoint.web.feed import PageContext
from setpoint.web.feeds import lesson as lesson_conversation
from setpoint.web.feeds import lessons as lessons_feed
from setpoint.web.feeds import progress as progress_conversation
from setpoint.web.lessons import library
from setpoint.web.lessons.files import MAX_BYTES
from setpoint.web.lessons.folder import Courses
from setpoint.web.lessons.library import LessonLibrary
from setpoint.web.lessons.progress import ProgressRecords
from setpoint.web.workspace import HOME, PART, Workspaces
from setpoint.wire.message import Answer, Request, Response

ADMIN = UserInfo("kubernetes-admin", groups=("system:masters", "system:authenticated"))


class Page:
    """The page of one learner."""

    def __init__(self, cluster: VirtualCluster, client: Client, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self.workspaces = Workspaces()
        self.restart()

    def restart(self) -> None:
        records = ProgressRecords(self.folder / "progress")
        self.library = LessonLibrary(Courses(self.folder / "own"), lambda user: records)

    def context(self, prefix: str = "") -> PageContext:
        parts = {PART: self.workspaces, library.PART: self.library}
        return PageContext(self.client, self.cluster.clock, prefix, "kubernetes-admin", "s", parts)

    def inside(self, fork: str) -> Client:
        return Client(
            PrefixedTransport(self.client.sender.transport, f"/forks/{fork}"), self.cluster.clock, user_agent="kubectl"
        )

    @asynccontextmanager
    async def lesson(self, **args: Any) -> AsyncIterator[Tab]:
        tab = Tab(self.cluster)
        async with child_tasks(lesson_conversation.run(self.context(), args, tab)) as (running,):
            await tab.until(lambda: "lesson" in tab.state or running.done())
            if running.done():
                running.result()
            yield tab


class Tab(TestConversation):
    """A tab that keeps the latest value of each part of the state."""

    def __init__(self, cluster: VirtualCluster) -> None:
        super().__init__()
        self.state: dict[str, Any] = {}
        self.notices: list[str] = []

    async def send(self, data: Any) -> None:
        await super().send(data)
        if "checks" in data:
            data = {**data, "checks": {**self.state.get("checks", {}), **data["checks"]}}
        if "notice" in data:
            self.notices.append(data["notice"])
        self.state.update(data)

    @property
    def met(self) -> list[str]:
        return sorted(self.state["progress"]["checks"])


@asynccontextmanager
async def page(cluster: VirtualCluster, folder: Path) -> AsyncIterator[Page]:
    """The page of a server with forks."""
    async with asyncio.TaskGroup() as tasks:
        store = cluster.embedded.store
        forks = Forks(CopySource(store, Moments(HistoryReader(store), dict)), cluster.clock, RandomIds(5), tasks)

        async def handle(request: Request) -> Answer:
            if not request.path.startswith(("/forks/", "/setpoint/v1/forks")):
                return await cluster.embedded.api.handle(request)
            target, query = parse_path(request.path), parse_query(request.query)
            verb = verb_of(request.method, target, query)
            ctx = RequestContext(request, target, query, verb, ADMIN, cluster.clock.now())
            try:
                return await (forks.answer if request.path.startswith("/forks/") else forks.manage)(ctx)
            except ApiError as error:
                return Response(error.code, orjson.dumps(error.status()), [("Content-Type", "application/json")])

        async with InProcess(handle) as server:
            transport = InProcessTransport(server.for_peer(in_process_peer("kubernetes-admin", ("system:masters",))))
            try:
                (folder / "own").mkdir(exist_ok=True)
                yield Page(cluster, Client(transport, cluster.clock, user_agent="setpoint-page"), folder)
            finally:
                for name in forks.names():
                    await forks.remove(name)


async def until(cluster: VirtualCluster, holds: Callable[[], bool], within: float = 60) -> None:
    await cluster.until(holds, within=within, every=0.2)


@virtual(nodes=1)
async def test_a_lesson_from_beginning_to_end(cluster: VirtualCluster, tmp_path: Path) -> None:
    async with page(cluster, tmp_path) as served:
        async with served.lesson(lesson="loop") as tab:
            assert (tab.state["cluster"], tab.state["next"]) == ("/forks/lesson-loop", "image-errors")
            assert tab.state["lesson"]["title"] == "The loop, and drift"
            await until(cluster, lambda: "three" in tab.state.get("checks", {}))
            assert tab.state["checks"]["three"] == {
                "ok": False,
                "message": "Three Pods of demo are ready (now: 0)",
                "note": "There is no Deployment demo yet.",
            }
            inside = served.inside("lesson-loop")
            labels = {"app": "demo"}
            container = {"name": "nginx", "image": "nginx:1.25"}
            await inside.create(
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "demo", "namespace": "default"},
                    "spec": {
                        "replicas": 3,
                        "selector": {"matchLabels": labels},
                        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                    },
                }
            )
            await until(cluster, lambda: tab.met == ["three"])
            assert tab.state["checks"]["three"]["message"] == "Three Pods of demo are ready (now: 3)"
            pods = (await inside.list(("v1", "Pod"), "default")).items
            await inside.delete(("v1", "Pod"), pods[0]["metadata"]["name"], "default")
            await until(cluster, lambda: "healed" in tab.met)
            assert "replicaset-controller created demo-" in tab.state["checks"]["healed"]["message"]
            assert tab.state["outcomes"] == ["predict-1"]
            await inside.patch(("apps/v1", "Deployment"), "demo", {"spec": {"replicas": 2}}, "default")
            await until(cluster, lambda: tab.state["done"])
            tab.say({"answer": "who", "value": [1]})
            tab.say({"answer": "chain", "value": [0, 1, 2, 3, 4]})
            await until(cluster, lambda: tab.state["progress"]["right"] == {"who": True, "chain": False})
        await cluster.client.get(("v1", "Namespace"), "default")
        assert await cluster.all(("v1", "Pod")) == [], "the cluster itself is not touched"

        await cluster.sleep(40)
        fork = await served.client.sender.json("GET", "/setpoint/v1/forks/lesson-loop")
        assert fork["state"] == "asleep", "a cluster that was left costs nothing"
        served.restart()
        async with served.lesson(lesson="loop") as tab:
            await until(cluster, lambda: tab.state.get("done") is True)
            await until(cluster, lambda: "healed" in tab.state.get("checks", {}))
            assert "created demo-" in tab.state["checks"]["healed"]["message"], "its history is kept while it sleeps"
            assert tab.state["progress"]["right"] == {"who": True, "chain": False}, "progress survives a restart"


@virtual(nodes=1)
async def test_faults_operator_hints_and_reset(cluster: VirtualCluster, tmp_path: Path) -> None:
    async with page(cluster, tmp_path) as served, served.lesson(lesson="operators") as tab:
        inside = served.inside("lesson-operators")
        assert tab.state["running"]["operators"] == []
        tab.say({"operator": True})
        await until(cluster, lambda: "built" in tab.met, within=90)
        assert tab.state["running"]["operators"] == ["postgres"]
        tab.say({"hint": "grown"})
        await until(cluster, lambda: "grown" in tab.state["hints"])
        (hint,) = tab.state["hints"]["grown"]
        assert hint[0]["type"] == "paragraph"
        await until(cluster, lambda: tab.state["offered"] == "healed" or tab.state["offered"] == "", within=5)
        await cluster.sleep(70)
        assert tab.state["offered"] in ("grown", ""), "its only hint is shown already"
        began = cluster.clock.monotonic()
        tab.say({"reset": True})
        await until(cluster, lambda: tab.state.get("anew") is True)
        assert cluster.clock.monotonic() - began < 2
        assert (tab.met, tab.state["running"]["operators"]) == ([], [])
        assert (await inside.list(("v1", "Pod"), "default")).items == []
        tab.say({"operator": True})
        await until(cluster, lambda: "built" in tab.met, within=90)


@virtual(nodes=1)
async def test_a_hint_is_offered_after_a_minute(cluster: VirtualCluster, tmp_path: Path) -> None:
    async with page(cluster, tmp_path) as served, served.lesson(lesson="level") as tab:
        await cluster.sleep(50)
        assert tab.state["offered"] == ""
        await cluster.sleep(20)
        assert tab.state["offered"] == "gone"
        tab.say({"hint": "gone"})
        await until(cluster, lambda: len(tab.state["hints"].get("gone", [])) == 1 and tab.state["offered"] == "")
        tab.say({"fault": 0})
        await until(cluster, lambda: tab.state["running"]["components"]["controllers"] is False)
        tab.say({"fault": 1})
        await until(cluster, lambda: tab.state["running"]["components"]["controllers"] is True)


@virtual(nodes=1)
async def test_files_and_typed_lines(cluster: VirtualCluster, tmp_path: Path) -> None:
    text = (
        "---\ntitle: Mine\n---\n:::file a.txt\nstart\n:::\n"
        ":::check edited\nsay: edited\nwhen: file('a.txt').contains('end')\n:::\n"
        ":::check typed\nsay: typed\nwhen: typed.exists(t, t == 'ls')\n:::\n"
        ":::check held\nsay: held\nwhen: file('b') == 'x'\nhold: true\n:::\n"
    )
    async with page(cluster, tmp_path) as served, served.lesson(name="mine", text=text) as tab:
        workspace = served.workspaces.of("kubernetes-admin", "/forks/lesson-dropped-mine")
        assert workspace.files.read("/home/user/a.txt") == "start\n"
        workspace.files.write("/home/user/a.txt", "the end")
        workspace.files.write("/home/user/b", "x")
        await until(cluster, lambda: tab.met == ["edited", "held"])
        workspace.add_line(cluster.clock.now().timestamp(), "ls")
        workspace.files.write("/home/user/b", "y")
        await until(cluster, lambda: tab.met == ["edited", "typed"])
    assert not (tmp_path / "progress").exists(), "a lesson that was dropped onto the page leaves nothing"


@virtual(nodes=1)
async def test_files_of_a_learner_outlive_the_cluster_of_the_lesson(cluster: VirtualCluster, tmp_path: Path) -> None:
    """A lesson whose cluster is new, as after a restart of the server, does not write its files over the learner's."""
    async with page(cluster, tmp_path) as served:
        (tmp_path / "own" / "mine.md").write_text("---\ntitle: Mine\n---\n:::file a.txt\nstart\n:::\n")
        path = "/home/user/a.txt"
        async with served.lesson(lesson="mine"):
            served.workspaces.of("kubernetes-admin", "/forks/lesson-own-mine").files.write(path, "changed\n")
        await served.client.sender.json("DELETE", "/setpoint/v1/forks/lesson-own-mine")
        served.restart()
        async with served.lesson(lesson="mine") as tab:
            workspace = served.workspaces.of("kubernetes-admin", "/forks/lesson-own-mine")
            assert workspace.files.read(path) == "changed\n"
            tab.say({"reset": True})
            await until(cluster, lambda: tab.state.get("anew") is True and workspace.files.read(path) == "start\n")


@virtual(nodes=1)
async def test_what_a_lesson_refuses(cluster: VirtualCluster, tmp_path: Path) -> None:
    async with page(cluster, tmp_path) as served:
        for args, error in (
            ({"lesson": "none"}, NotFound),
            ({"lesson": 5}, BadRequest),
            ({"name": "../x", "text": "x"}, BadRequest),
            ({"name": "x", "text": "x" * 300_000}, BadRequest),
            ({"name": "x", "text": "---\ntitle: x\nstart: {apply: [a.yaml]}\n---\n"}, BadRequest),
        ):
            with pytest.raises(error):
                await lesson_conversation.run(served.context(), args, TestConversation())
        with pytest.raises(BadRequest, match=r"mine\.md:4: there is no block magic"):
            args = {"name": "mine", "text": "---\ntitle: x\n---\n:::magic\n:::\n"}
            await lesson_conversation.run(served.context(), args, TestConversation())
        with pytest.raises(BadRequest):
            await lesson_conversation.run(served.context("/forks/x"), {"lesson": "loop"}, TestConversation())
        for message in (
            {"fault": 7},
            {"fault": -1},
            {"operator": True},
            {"answer": "none", "value": [1]},
            {"answer": "who", "value": {"a": 1}},
            {"answer": "who", "value": [1] * 1000},
            {"hint": "none"},
            {"solution": True},
            "reset",
        ):
            tab = Tab(cluster)
            tab.say(message)
            with pytest.raises(BadRequest):
                await lesson_conversation.run(served.context(), {"lesson": "loop"}, tab)


@virtual(nodes=1)
async def test_there_are_no_forks(cluster: VirtualCluster, tmp_path: Path) -> None:
    served = Page(cluster, cluster.client, tmp_path)
    with pytest.raises(NotFound, match="this server does not offer that"):
        await lesson_conversation.run(served.context(), {"lesson": "loop"}, TestConversation())
    without = PageContext(cluster.client, cluster.clock, "", "x", "s")
    with pytest.raises(NotFound, match="has no lessons"):
        await lesson_conversation.run(without, {"lesson": "loop"}, TestConversation())


@virtual(nodes=1)
async def test_the_oldest_of_many_clusters_makes_room(cluster: VirtualCluster, tmp_path: Path) -> None:
    async with page(cluster, tmp_path) as served:
        for number, lesson in enumerate(Courses().all()["setpoint"].lessons[:9]):
            async with served.lesson(lesson=lesson.name) as tab:
                assert tab.state["lesson"]["number"] == number + 1
            await cluster.sleep(2)
        forks = (await served.client.sender.json("GET", "/setpoint/v1/forks"))["forks"]
        names = [each["name"] for each in forks]
        assert len(names) == 8 and "lesson-manifest" not in names


class Output:
    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.is_synced = False

    def set(self, key: str, item: Any) -> None:
        self.items[key] = item

    def remove(self, key: str) -> None:
        del self.items[key]

    def log(self, entry: Any) -> None:
        raise AssertionError(entry)

    def synced(self) -> None:
        self.is_synced = True


@virtual(nodes=1)
async def test_an_export_has_the_files(cluster: VirtualCluster, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    here, there = Page(cluster, cluster.client, tmp_path / "a"), Page(cluster, cluster.client, tmp_path / "b")

    async def conversed(page: Page, **args: Any) -> dict[str, Any]:
        tab = Tab(cluster)
        await progress_conversation.run(page.context(), args, tab)
        return tab.state

    here.library.save("kubernetes-admin", Progress("loop", began="2026-01-01T00:00:00Z"))
    here.library.save("kubernetes-admin", Progress("manifest", began="2026-01-01T00:00:00Z"))
    loop = here.workspaces.of("kubernetes-admin", "/forks/lesson-loop").files
    for path, text in {"web.yaml": "kind: Pod", "a/b.txt": "\u20ac", "raw": "\udcff", "/tmp/x": "1"}.items():
        loop.write(path if path.startswith("/") else f"{HOME}/{path}", text)
    exported = await conversed(here, export=True)
    found = {each["lesson"]: each["files"] for each in exported["export"]["lessons"]}
    assert found == {"loop": {"web.yaml": "kind: Pod", "a/b.txt": "\u20ac", "/tmp/x": "1"}, "manifest": {}}
    assert exported["leftOut"] == 1
    read = there.workspaces.of("kubernetes-admin", "/forks/lesson-loop")
    read.files.write(f"{HOME}/web.yaml", "another")
    read.files.write(f"{HOME}/own.txt", "stays")
    assert await conversed(there, **{"import": exported["export"]}) == {"imported": 2, "leftOut": 0}
    assert read.file_texts() == {**found["loop"], "own.txt": "stays"}

    # What is too large for a message is left out, whatever the lesson.
    for name in ("loop", "manifest"):
        large = here.workspaces.of("kubernetes-admin", f"/forks/lesson-{name}").files
        large.write(f"{HOME}/large", "\x00" * 60_000)  # six bytes each in JSON
    exported = await conversed(here, export=True)
    assert exported["leftOut"] == 2 and len(json.dumps(exported["export"])) < MAX_BYTES + 10_000
    assert sorted("large" in each["files"] for each in exported["export"]["lessons"]) == [False, True]

    def lessons(files: Any, name: str = "loop") -> dict[str, Any]:
        return {"import": {"setpointProgress": 1, "lessons": [{"format": 1, "lesson": name, "files": files}]}}

    wrong: list[Any] = [5, [], {"a": 1}, {"": "x"}, {"x" * 2_000: ""}, {str(number): "" for number in range(101)}]
    for files in wrong:
        with pytest.raises(BadRequest, match="the files of"):
            await conversed(there, **lessons(files))
    for refused in ({".": "x"}, {"../user": "x"}, {"big": "x" * (1 << 21)}):
        assert (await conversed(there, **lessons(refused)))["leftOut"] == 1
    assert (await conversed(there, **lessons({"a": ""}, "unknown")))["leftOut"] == 1
    assert read.file_texts() == {**found["loop"], "own.txt": "stays"}


@virtual(nodes=1)
async def test_the_list_with_progress(cluster: VirtualCluster, tmp_path: Path) -> None:
    """A teacher's lesson that is put into the folder appears, and so do its mistakes."""
    own = tmp_path / "own"
    own.mkdir()
    served, output = Page(cluster, cluster.client, tmp_path), Output()
    async with child_tasks(lessons_feed.run(served.context(), {}, output)):
        await until(cluster, lambda: output.is_synced)
        assert output.items["setpoint/loop"]["number"] == 3
        assert (output.items["setpoint/loop"]["met"], output.items["setpoint/loop"]["total"]) == (0, 3)
        assert output.items["own"]["problems"] == []
        (own / "mine.md").write_text(new_lesson("Mine"))
        (own / "bad.md").write_text("nothing")
        await until(cluster, lambda: "own/mine" in output.items)
        assert output.items["own"]["problems"][0].startswith("bad.md:1: a lesson begins with")
        export = Tab(cluster)
        await progress_conversation.run(served.context(), {"export": True}, export)
        exported = export.state["export"]
        record = {"format": 1, "lesson": "loop", "checks": {"three": "2026-01-01T00:00:00Z"}}
        await progress_conversation.run(served.context(), {"import": {**exported, "lessons": [record]}}, export)
        assert export.state["imported"] == 1
        await until(cluster, lambda: output.items["setpoint/loop"]["met"] == 1, within=5)
        await progress_conversation.run(served.context(), {"forget": "loop"}, export)
        await until(cluster, lambda: output.items["setpoint/loop"]["met"] == 0, within=5)
        (own / "mine.md").unlink()
        await until(cluster, lambda: "own/mine" not in output.items)
        wrong: list[dict[str, Any]] = [
            {"import": {}},
            {"import": {"setpointProgress": 1, "lessons": 5}},
            {"forget": "none"},
        ]
        for args in wrong:
            with pytest.raises(BadRequest):
                await progress_conversation.run(served.context(), args, export)
