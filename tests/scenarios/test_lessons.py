"""`lesson` and `demo`: every lesson is solved in virtual time, taken in a terminal, written and tested."""

from __future__ import annotations

import asyncio
import io
import shlex
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from command_line import Result, surroundings, typed_offline

from setpoint.cli.invocation import CommandIO
from setpoint.cli.lessons.playing import demo_lesson, scenes_of
from setpoint.cli.lessons.testing import check_lesson
from setpoint.cli.main import run_within
from setpoint.cli.virtual_terminal import VirtualTerminal
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.cluster.fresh_start import FreshStarts
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.course.course import Course, new_lesson, read_course
from setpoint.web.lessons.folder import Courses, built_in_course, read_folder

COURSE = built_in_course()


# -- the course --------------------------------------------------------------------------------------------------------


def test_the_course_is_complete() -> None:
    assert COURSE.problems == ()
    assert len(COURSE.lessons) == 16
    for lesson in COURSE.lessons:
        assert lesson.minutes <= 10 and lesson.summary and lesson.checks and lesson.quizzes, lesson.name
        assert all(check.hints for check in lesson.checks), lesson.name
        runs = sum(step.kind == "run" for step in lesson.solution)
        assert runs == len(lesson.runs), f"{lesson.name}: the solution types every command that the lesson shows"


def solved(course: Course, name: str) -> list[str]:
    lesson = course.lesson(name)
    assert lesson is not None

    async def main() -> list[str]:
        result = await check_lesson(course, lesson, FreshStarts(RandomIds(3)), SystemClock().now())
        return [str(each) for each in result.problems]

    return asyncio.run(main())


@pytest.mark.parametrize("name", [lesson.name for lesson in COURSE.lessons])
def test_the_solution_of_a_lesson_solves_it(name: str) -> None:
    assert solved(COURSE, name) == []


def test_what_lesson_test_finds() -> None:
    text = new_lesson("Mine")
    changed = {
        "green": text.replace("when: count == 2", "when: count == 0"),
        "unsolved": text.replace("--replicas=2\nkubectl rollout", "--replicas=1\nkubectl rollout"),
        "wrong": text.replace("@answer quiz-1 b", "@answer quiz-1 a"),
        "failing": text.replace("@answer quiz-1 b", "kubectl get nothing"),
        "bare": text.partition(":::solution")[0],
    }
    course = read_course({f"{name}.md": each.encode() for name, each in changed.items()})
    assert course.problems == ()
    assert solved(course, "green") == ["green.md:14: the check two-ready is met at the start already"]
    assert solved(course, "wrong") == ["wrong.md:36: @answer quiz-1: a is not the right answer"]
    (unsolved,) = solved(course, "unsolved")
    assert unsolved.startswith(
        "unsolved.md:14: the solution does not meet the check two-ready: Two Pods of web are ready"
    )
    (failing,) = solved(course, "failing")
    assert failing.startswith(
        "failing.md:36: `kubectl get nothing` ended with 1: error: the server doesn't have a resource"
    )
    assert solved(course, "bare") == ["bare.md: the lesson has no solution"]


def test_lesson_new_and_lesson_test(tmp_path: Path) -> None:
    folder = tmp_path / "courses" / "mine"
    made = typed_offline(f"lesson new first-one --lessons {folder}", tmp_path)
    assert (made.code, made.err) == (0, ""), "also the folder is made"
    assert typed_offline(f"lesson new first-one --lessons {folder}", tmp_path).code == 1
    assert typed_offline("lesson new Bad_Name", tmp_path).code == 1
    assert "First one" in (folder / "first-one.md").read_text()
    done = typed_offline(f"lesson test {folder}", tmp_path)
    assert (done.code, done.out.split()[:2]) == (0, ["first-one", "ok,"])
    (folder / "second.md").write_text("---\ntitle: x\n---\n:::magic\n:::\n")
    done = typed_offline(f"lesson test {folder} --only first-one", tmp_path)
    assert (done.code, done.out.splitlines()[0][:37]) == (1, "second.md:4: there is no block magic;")
    assert typed_offline(f"lesson test {folder}/none", tmp_path).code == 1


def test_a_folder_from_strangers(tmp_path: Path) -> None:
    """Links, devices, hidden and foreign files are not read; the folder is read again when it changes."""
    secret = tmp_path / "secret.yaml"
    secret.write_text("kind: Secret")
    folder = tmp_path / "course"
    (folder / "sub.md").mkdir(parents=True)
    (folder / "mine.md").write_text(new_lesson("Mine"))
    (folder / "linked.yaml").symlink_to(secret)
    (folder / ".hidden.md").write_text("x")
    (folder / "run.sh").write_text("rm -rf /")
    course = read_folder(folder)
    assert ([each.name for each in course.lessons], course.problems, dict(course.files)) == (["mine"], (), {})
    courses = Courses(folder)
    assert courses.find("own/mine") is not None and courses.find("mine") is not None
    assert courses.find("loop") is not None and courses.find("own/loop") is None and courses.find("none") is None
    (folder / "mine.md").write_text(new_lesson("Mine").replace("Mine", "Yours"))
    found = courses.find("mine")
    assert found is not None and (found.lesson.title, found.fork) == ("Yours", "lesson-own-mine")
    assert Courses(tmp_path / "none").all()["own"].problems


# -- in a terminal -----------------------------------------------------------------------------------------------------


class Learner:
    """Types commands against a cluster in virtual time."""

    def __init__(self, cluster: VirtualCluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home

    def connect(self, _: Access, __: float) -> Client:
        return self.cluster.client.named("kubectl")

    async def run(self, line: str, stdin: str = "") -> Result:
        around, result = surroundings(self.home, self.cluster.clock, stdin, {}, self.connect)
        return result(await run_within(["--server", "https://local", *shlex.split(line)], around))

    async def __call__(self, line: str, stdin: str = "") -> str:
        done = await self.run(line, stdin)
        assert done.code == 0, f"{line}: {done.err}{done.out}"
        return done.out


@virtual(nodes=3)
async def test_a_lesson_without_a_terminal(
    cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = Learner(cluster, tmp_path)
    listed = await learner("lesson")
    assert "  16  operators" in listed and "done" not in listed
    shown = await learner("lesson loop")
    assert "The loop, and drift" in shown and "$ kubectl create deployment demo" in shown and "{count}" not in shown
    missing = await learner.run("lesson loop --check")
    assert missing.code == 1 and "There is no Deployment demo yet." in missing.out
    assert "kubectl create deployment demo" in await learner("lesson loop --hint")
    assert "no further hint" in await learner("lesson loop --hint")
    solution = await learner("lesson loop --solution")
    assert "kubectl scale deployment demo --replicas=2" in solution

    await learner("create deployment demo --image=nginx:1.25 --replicas=3")
    await cluster.settle()
    assert "done     Three Pods of demo are ready (now: 3)" in (await learner.run("lesson loop --check")).out
    pods = await cluster.all(("v1", "Pod"))
    await learner(f"delete pod {pods[0]['metadata']['name']}")
    await cluster.settle()
    healed = await learner.run("lesson loop --check")
    assert "done     Your delete was answered: replicaset-controller created demo-" in healed.out
    await learner("scale deployment demo --replicas=2")
    await cluster.settle()
    assert "Well done." in await learner("lesson loop --check")
    assert "8 min  done" in await learner("lesson")

    answers = "".join(f"{'abcdefgh'[quiz.right[0]]}\n" for quiz in COURSE.lessons[2].quizzes[1:])
    order = "".join("abcdefgh"[at] for at in COURSE.lessons[2].quizzes[0].right)
    assert "3 of 3 right." in await learner("lesson loop --quiz", f"{order}\n{answers}")
    assert (await learner.run("lesson loop --quiz", "x\n")).code == 1

    exported = orjson.loads(await learner("lesson export"))
    (record,) = exported["lessons"]
    assert (record["lesson"], sorted(record["checks"])) == ("loop", ["healed", "scaled", "three"])
    (file,) = (tmp_path / "progress").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_bytes(b"damaged")
    assert "done" not in await learner("lesson"), "it is set aside, and nothing fails"
    (tmp_path / "backup.json").write_bytes(orjson.dumps(exported))
    assert (await learner("lesson import backup.json")).endswith("1 lesson was read.\n")
    record["files"] = {"web.yaml": "kind: Pod"}  # as the page exports it
    (tmp_path / "page.json").write_bytes(orjson.dumps(exported))
    assert "read.\nThe files of the lessons were not" in await learner("lesson import page.json")
    assert "8 min  done" in await learner("lesson")
    (tmp_path / "backup.json").write_bytes(b'{"setpointProgress": 1, "lessons": [{"format": 1, "lesson": "../x"}]}')
    assert (await learner.run("lesson import backup.json")).code == 1
    unknown = await learner.run("lesson alchemy")
    assert unknown.code == 1 and "unknown lesson 'alchemy'" in unknown.err


@virtual(nodes=3)
async def test_reset_and_start_objects(
    cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = Learner(cluster, tmp_path)
    begun = await learner.run("lesson labels --check")
    assert "Deployment web is in the cluster for this lesson." in begun.out
    assert await cluster.find(("v1", "Service"), "shop") is not None
    assert "Deployment web was deleted." in await learner("lesson labels --reset")
    await cluster.settle()
    assert await cluster.find(("apps/v1", "Deployment"), "web") is None
    assert await cluster.find(("v1", "Service"), "shop") is None
    file = tmp_path / "progress" / "labels.json"
    record = {"format": 1, "lesson": "labels", "began": "2026-01-01T00:00:00Z", "revision": 10**9}
    file.write_bytes(orjson.dumps(record))
    again = await learner.run("lesson labels --check")
    assert "Service shop is in the cluster for this lesson." in again.out, "this is another cluster than that time"


class Keys(VirtualTerminal):
    """A terminal whose keys a test presses."""

    def __init__(self) -> None:
        super().__init__()
        self.typed: asyncio.Queue[bytes] = asyncio.Queue()

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.typed.get():
            yield piece


@virtual(nodes=3)
async def test_a_lesson_in_a_terminal(cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits at each step, and notices by itself when a task is done."""
    monkeypatch.chdir(tmp_path)
    learner, keys, out = Learner(cluster, tmp_path), Keys(), io.BytesIO()
    around = CommandIO(
        stdin=keys, stdout=out, stderr=out, environment={}, home=tmp_path, clock=cluster.clock, connect=learner.connect
    )
    shown = 0

    async def until(text: str) -> None:
        """Wait until a text is shown after what was shown before."""
        nonlocal shown

        def seen() -> bool:
            return text in out.getvalue().decode()[shown:]

        await cluster.until(seen, within=60, every=0.2)
        shown += out.getvalue().decode()[shown:].index(text) + len(text)

    async with child_tasks(run_within(["--server", "https://local", "lesson", "image-errors"], around)) as (taking,):
        await until("press Enter")
        await learner("run broken --image=nginx:no-such-tag")
        keys.typed.put_nowait(b"\n")
        await until("done     The Pod broken waits, and its reason is ")
        await until("press Enter")
        keys.typed.put_nowait(b"\n")
        await until("Your answer")
        keys.typed.put_nowait(b"z\na\n")
        await until("Answer with a, b, c.")
        await until("No: b.")
        await until("press Enter")
        keys.typed.put_nowait(b"\n")
        await until("Your answer")
        keys.typed.put_nowait(b"c\n")
        await until("Right.")
        await until("press Enter")
        keys.typed.put_nowait(b"\n")
        await until("Waiting until it is done")
        keys.typed.put_nowait(b"h\n")
        await until("one of the few fields of its spec")
        await learner("set image pod/broken broken=nginx:1.28")
        await until("done     You have corrected the image, and the same Pod is running")
        await until("Press Enter to see the answer")
        keys.typed.put_nowait(b"\n")
        await until("2 of 2 done.")
        await until("setpoint lesson crash-loop")
        assert await taking == 0


@virtual(nodes=2)
async def test_leaving_a_lesson(cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learner, keys, out = Learner(cluster, tmp_path), Keys(), io.BytesIO()
    around = CommandIO(
        stdin=keys, stdout=out, stderr=out, environment={}, home=tmp_path, clock=cluster.clock, connect=learner.connect
    )
    for typed in (b"q\n", b"\n", b""):
        keys.typed.put_nowait(typed)
        keys.typed.put_nowait(b"")
        code = await run_within(["--server", "https://local", "lesson", "manifest"], around)
        assert code == 0 and "Your progress is kept." in out.getvalue().decode()
    assert (tmp_path / "simple-pod.yaml").read_text().startswith("apiVersion: v1")


# -- the demo ----------------------------------------------------------------------------------------------------------


def test_the_scenes_of_the_demo() -> None:
    scenes = scenes_of(demo_lesson())
    assert [each.title[0] for each in scenes] == ["1", "2", "3", "4", "5", "6"]
    assert demo_lesson().autoplay


@pytest.mark.slow
async def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    """In real time, as people see it: some seconds, most of them for a node that must be missed first."""
    around, result = surroundings(tmp_path, None, "", {}, None)
    assert isinstance(around.stdout, io.BytesIO)
    done = result(await run_within(["demo"], around))
    assert done.code == 0, done.err + done.out[-2000:]
    for words in ("deployment.apps/hello created", "NotReady", "Insufficient cpu", "and control"):
        assert words in done.out
    assert "error" not in done.out
