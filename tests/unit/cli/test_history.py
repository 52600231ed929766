"""`history`, `mark`, `get --at`, `describe --at` and `diff --from`."""

from __future__ import annotations

import asyncio
import json
import re
from io import BytesIO

from command_line import Typed, surroundings

from setpoint.cli.main import run_within
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.meta.moments import MAX_MARKS

DEPLOYMENTS = builtin("deployments", "apps")


def columns(text: str) -> list[list[str]]:
    return [re.split(r"\s{3,}", line) for line in text.splitlines()]


async def test_the_life_of_an_object(typed: Typed) -> None:
    clock = typed.server.clock
    await typed("create deployment web --image=nginx:1.27")
    await clock.advance(60)
    await typed("mark before")
    await typed("set image deployment/web nginx=nginx:1.28")
    await clock.advance(60)
    await typed("scale deploy/web --replicas=4 --as alice --as-group system:masters")
    for replicas in (2, 4):
        await typed.server.client.patch(
            DEPLOYMENTS, "web", {"status": {"replicas": replicas}}, "default", subresource="status"
        )
    await clock.advance(30)

    done = await typed.run("history deployment/web")
    header, *lines = columns(done.out)
    assert header == ["REV", "WHEN", "WHO", "WHAT"]
    assert [line[1::2] for line in lines] == [
        ["30s", "status.replicas 2 -> 4"],
        ["30s", "spec.replicas 1 -> 4"],
        ["90s", "image nginx:1.27 -> nginx:1.28"],
        ["2m30s", "created: 1 replica of nginx:1.27"],
    ], done.out
    assert [line[2].startswith("alice (cli), impersonated by") for line in lines] == [False, True, False, False]
    assert done.err == "the history begins 2030-01-01 00:00:00 UTC; 1 status change is left out, -o wide shows it\n"
    wide = columns(await typed("history deployment/web -o wide"))
    assert wide[0] == ["REV", "TIME", "WHO", "VERB", "WHAT"] and len(wide) == 6
    assert wide[1][1:4:2] == ["2030-01-01T00:02:00.000Z", "patch/status"]
    for field in ("spec.replicas", "replicas"):
        assert [line[3] for line in columns(await typed(f"history deploy web --field {field}"))[1:]] == [
            "spec.replicas 1 -> 4",
            "created: 1 replica of nginx:1.27",
        ]
    assert len(columns(await typed("history deploy web --field image --since 100s"))) == 2
    done = await typed.run("history deploy web --field spec.paused")
    assert done.out == "" and done.err.startswith("no change of the field spec.paused is known; the history begins")
    listed = json.loads(await typed("history deployment/web -o json"))
    assert [each["kind"] for each in listed] == ["updated"] * 4 + ["created"]
    assert listed[2]["fields"] == [{"path": ["spec", "replicas"], "old": 1, "new": 4}]
    assert listed[2]["cause"]["user"].startswith("alice<")

    # As it was.
    revision = lines[-1][0]
    table = await typed(f"get deployments --at {revision}")
    assert table.splitlines()[1].split()[-1] == "0s"  # its age then
    assert columns(await typed("get deploy web --at -45s"))[1][-1] == "105s"
    image = "-o jsonpath='{.spec.template.spec.containers[0].image}'"
    assert await typed(f"get deploy web --at before {image}") == "nginx:1.27"
    assert await typed(f"get deploy web --at -1m {image}") == "nginx:1.28"
    assert await typed(f"get deploy web --at 2030-01-01T00:01:30Z {image}") == "nginx:1.28"
    assert re.search("Image: +nginx:1.27", await typed("describe deploy web --at before"))
    refused = await typed.refused("get pods --at 2029-01-01T00:00:00Z")
    assert "is not in the history, which begins with revision" in refused
    assert "there is no mark nothing" in await typed.refused("get pods --at nothing")
    assert "is not a moment" in await typed.refused("get pods --at -5parsecs")

    # What has changed.
    done = await typed.run("diff --from before deployment/web")
    assert done.code == 1
    assert done.out.splitlines()[:2] == ["--- deployment.apps/web at before", "+++ deployment.apps/web at now"]
    assert "-      - image: nginx:1.27\n+      - image: nginx:1.28\n" in done.out
    assert "-  replicas: 1\n+  replicas: 4\n" in done.out and "status" not in done.out
    assert (await typed.run("diff --from before --to before deployment/web")).code == 0
    await typed("create configmap new --from-literal=a=1")
    await typed("create secret generic hidden --from-literal=password=first")
    await typed("mark later")
    await typed("delete deployment web")
    await typed.server.client.patch(builtin("secrets"), "hidden", {"stringData": {"password": "second"}}, "default")
    done = await typed.run("diff --from before")
    assert (done.code, done.out) == (1, "+ configmap/new\n+ secret/hidden\n- deployment.apps/web\n")
    assert done.err == "2 created, 1 deleted\n"
    assert (await typed.run("diff --from later secrets")).out == "~ secret/hidden  data.password\n"
    assert "***" in (await typed.run("diff --from later secret/hidden")).out
    everywhere = await typed.run("diff --from before --to later -A")
    assert "~ deployment.apps/web (default)  spec.replicas 1 -> 4, image nginx:1.27 -> nginx:1.28" in everywhere.out

    # What is gone.
    assert columns(await typed("history deployment/web"))[1][3] == "deleted"
    header, gone = columns(await typed("history deployments --deleted"))
    assert header == ["REV", "WHEN", "NAMESPACE", "NAME", "WHO"]
    assert gone[1:4] == ["0s", "default", "web"] and "apiserver" in gone[4]
    assert (await typed.run("history pods --deleted")).err == "No deleted objects are known.\n"
    assert 'deployments.apps "no" not found' in await typed.refused("history deployment/no")

    # A deletion that another client completes is that of the one who asked for it.
    await typed("create configmap held --from-literal=a=1")
    held, finalizers = builtin("configmaps"), {"metadata": {"finalizers": ["example.com/backup"]}}
    await typed.server.client.patch(held, "held", finalizers, "default")
    await typed("delete configmap held --wait=false --as alice --as-group system:masters")
    assert columns(await typed("history configmap/held"))[1][3] == "deletion requested"
    await clock.advance(10)
    await typed("create configmap mark --from-literal=a=1")
    moment = json.loads(await typed("get configmap mark -o json"))["metadata"]["resourceVersion"]
    await clock.advance(3600)
    assert "drift     it has been in deletion for 10s" in await typed(f"status configmap/held --at {moment}")
    assert "drift     it has been in deletion for 60m" in await typed("status configmap/held")
    assert "--at needs an object" in await typed.refused("status --at -5m")
    await typed.server.client.patch(held, "held", {"metadata": {"finalizers": None}}, "default")
    gone = columns(await typed("history configmaps --deleted"))[1]
    assert gone[3] == "held" and gone[4].startswith("alice (cli)")

    # Marks.
    assert [line[0] for line in columns(await typed("mark"))] == ["NAME", "before", "later"]
    assert await typed("mark later --at -1m") != await typed("mark first --at start")
    assert await typed("mark later --delete") == "mark later deleted\n"
    assert "there is no mark later" in await typed.refused("get pods --at later")
    for name in ("12", "start", "-5m", "a/b"):
        assert "cannot be the name of a mark" in await typed.refused(f"mark -- {name}")


async def test_a_command_without_files_asks_for_an_object(typed: Typed) -> None:
    assert await typed.refused("history") == "error: name an object: KIND/NAME, or KIND NAME\n"
    assert await typed.refused("history --deleted") == "error: name a kind: `setpoint history pods --deleted`\n"
    assert "'-f rsrc.yaml'" in await typed.refused("scale --replicas=2")


async def test_changes_as_they_happen(typed: Typed) -> None:
    await typed("create configmap c --from-literal=a=1")

    def connect(access: Access, _: float) -> Client:
        return Client(typed.transport, typed.server.clock)

    io, _ = surroundings(typed.home, typed.server.clock, "", {}, connect)
    running = asyncio.ensure_future(run_within(["--server", "https://local", "history", "configmap/c", "-w"], io))
    for number in (2, 3):
        await typed.server.clock.advance(1.5)
        await typed.server.client.patch(builtin("configmaps"), "c", {"data": {"a": str(number)}}, "default")
    await typed.server.clock.advance(1.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert isinstance(io.stdout, BytesIO)
    lines = columns(io.stdout.getvalue().decode())
    assert [line[3] for line in lines] == ["WHAT", "created", "data.a 1 -> 2", "data.a 2 -> 3"]


async def test_the_number_of_marks_is_limited(typed: Typed) -> None:
    assert "there is no mark m1" in await typed.refused("mark m1 --delete")
    for number in range(MAX_MARKS):
        await typed(f"mark m{number}")
    assert f"there are {MAX_MARKS} marks already" in await typed.refused("mark one-more")
    await typed("mark m1")  # it moves
    assert await typed("mark m2 --delete") == "mark m2 deleted\n"
    assert (await typed("mark one-more")).startswith("mark one-more set at revision ")
