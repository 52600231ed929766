"""`demo` and `lesson`, run to the end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from command_line import Result, surroundings, typed_offline

from setpoint.cli.main import run_within
from setpoint.cli.teaching.lessons import LESSONS
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual

PODS, DEPLOYMENTS = builtin("pods"), builtin("deployments", "apps")


class Pupil:
    """Types what the lessons ask for."""

    def __init__(self, cluster: VirtualCluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home

    async def run(self, line: str, stdin: str = "") -> Result:
        import shlex

        def connect(_: Access, __: float) -> Client:
            return self.cluster.client.named("pupil")

        around, result = surroundings(self.home, self.cluster.clock, stdin, {}, connect)
        return result(await run_within(["--server", "https://local", *shlex.split(line)], around))

    async def __call__(self, line: str, stdin: str = "") -> str:
        done = await self.run(line, stdin)
        assert done.code == 0, f"{line}: {done.err}{done.out}"
        return done.out

    async def passes(self, lesson: str) -> None:
        before = await self.run(f"lesson {lesson} --check")

        async def done() -> bool:
            return (await self.run(f"lesson {lesson} --check")).code == 0

        await self.cluster.until(done, within=120)
        assert before.code in (0, 1)

    async def fails(self, lesson: str) -> str:
        done = await self.run(f"lesson {lesson} --check")
        assert done.code == 1
        assert "missing" in done.out
        return done.out


@virtual(nodes=3)
async def test_every_lesson_can_be_completed(cluster: VirtualCluster, tmp_path: Path) -> None:
    type_it = Pupil(cluster, tmp_path)
    for lesson in LESSONS:
        assert lesson.title in await type_it(f"lesson {lesson.name}")
        await type_it.fails(lesson.name)

    shown = [line[2:] for line in LESSONS[0].text.splitlines() if line.startswith("  ")]
    await type_it("apply -f -", "\n".join(shown))
    await type_it.fails("anatomy")
    await type_it("label pod first lesson=one")
    await type_it.passes("1")

    await type_it("create deployment loop --image=nginx --replicas=3")
    await type_it("scale deployment loop --replicas=5")
    await type_it.passes("loop")

    name = (await cluster.client.list(PODS, "default", label_selector="app=loop")).items[0]["metadata"]["name"]
    await type_it(f"label pod {name} app- state=aside")
    await type_it.passes("drift")

    for image in ("nginx:1.27", "nginx:1.28"):
        await type_it(f"set image deployment/loop nginx={image}")
        await type_it("rollout status deployment/loop")
    await type_it("rollout undo deployment/loop")
    await type_it.passes("rollouts")

    await type_it("run crash --image=busybox -- sh -c 'exit 1'")
    await type_it(
        "create -f -",
        "{apiVersion: v1, kind: Pod, metadata: {name: greedy}, spec: {containers: [{name: a, image: nginx, "
        "resources: {requests: {cpu: 1000}}}]}}",
    )
    await type_it.passes("failure")

    shown = [line[2:] for line in LESSONS[5].text.splitlines() if line.startswith("  ")]
    await type_it("apply -f -", "\n".join(shown))

    async def served() -> bool:
        teapot = "{apiVersion: example.com/v1, kind: Teapot, metadata: {name: brown}, spec: {cups: 4}}"
        return (await type_it.run("apply -f -", teapot)).code == 0

    await cluster.until(served, within=30)
    too_many = await type_it.run(
        "apply -f -", "{apiVersion: example.com/v1, kind: Teapot, metadata: {name: big}, spec: {cups: 100}}"
    )
    assert "should be less than or equal to 12" in too_many.err
    await type_it.passes("operators")


@pytest.mark.parametrize("lesson", [lesson.name for lesson in LESSONS])
def test_the_quiz_of_a_lesson(lesson: str, tmp_path: Path) -> None:
    chosen = next(one for one in LESSONS if one.name == lesson)
    right = "".join("abc"[question.right] + "\n" for question in chosen.quiz)
    done = typed_offline(f"lesson {lesson} --quiz", tmp_path, stdin=right)
    assert "2 of 2 right." in done.out
    wrong = "x\n\n" + "".join("abc"[(question.right + 1) % 3] + "\n" for question in chosen.quiz)
    assert "0 of 2 right." in typed_offline(f"lesson {lesson} --quiz", tmp_path, stdin=wrong).out
    assert typed_offline(f"lesson {lesson} --quiz", tmp_path, stdin="a\n").code == 1


def test_an_unknown_lesson_is_an_error(tmp_path: Path) -> None:
    done = typed_offline("lesson alchemy", tmp_path)
    assert done.code == 1
    assert "unknown lesson 'alchemy'" in done.err


@pytest.mark.slow
async def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    """In real time, as people see it: some ten seconds, most of them for a node that must be missed first."""
    around, result = surroundings(tmp_path, None, "", {}, None)
    assert isinstance(around.stdout, io.BytesIO)
    done = result(await run_within(["demo"], around))
    assert done.code == 0, done.err + done.out[-2000:]
    for words in ("deployment.apps/hello created", "NotReady", "Insufficient cpu", "and control loops"):
        assert words in done.out
    assert "error" not in done.out
