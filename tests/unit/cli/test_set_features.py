"""`set`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Typed, typed_offline

from setpoint.cli.verbs.set.changing import matches
from setpoint.cli.verbs.set.env import updated


async def containers(typed: Typed) -> list[dict[str, Any]]:
    found = json.loads(await typed("get deploy web -o json"))["spec"]["template"]["spec"]["containers"]
    return list(found)


async def test_images(typed: Typed) -> None:
    await typed("create deployment web --image=a:1 --image=b:1")
    assert await typed("set image deploy/web a=a:2") == "deployment.apps/web image updated\n"
    assert [one["image"] for one in await containers(typed)] == ["a:2", "b:1"]
    assert await typed("set image deploy/web a=a:2") == ""
    done = await typed.run("set image deploy/web b=b:2 no=x")
    assert (done.code, done.out) == (1, "deployment.apps/web image updated\n")
    assert done.err == 'error: unable to find container named "no"\n'
    assert await typed("set image deploy/web *=c:1 --dry-run=client -o name") == "deployment.apps/web\n"
    assert [one["image"] for one in await containers(typed)] == ["a:2", "b:2"]


async def test_resources_and_account(typed: Typed) -> None:
    await typed("create deployment web --image=a:1 --image=b:1")
    await typed("set resources deploy web -c=a --limits=cpu=0.5,memory=1Gi --requests=cpu=100m")
    assert [one["resources"] for one in await containers(typed)] == [
        {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
        {},
    ]
    await typed("create cm c")
    assert await typed("set sa deploy web robot") == "deployment.apps/web serviceaccount updated\n"
    assert "is not a pod or does not have a pod template: *v1.ConfigMap" in await typed.refused("set image cm/c a=b")


async def test_environments(typed: Typed) -> None:
    await typed("create deployment web --image=a:1")
    await typed("create cm settings --from-literal=a.b=1")
    await typed("set env deploy/web A=1 B=2")
    done = await typed.run("set env deploy/web A=3 B- --from=cm/settings")
    assert done.err == "Warning: key a.b transferred to A_B\n"
    listed = "# Deployment web, container a\nA=3\n# A_B from configmap settings, key a.b\n"
    assert await typed("set env deploy/web --list") == listed
    assert await typed("set env deploy/web --list --resolve") == "# Deployment web, container a\nA=3\nA_B=1\n"
    assert await typed("set env deploy/web -", stdin="C=4 # four\nnothing\n") == "deployment.apps/web env updated\n"
    assert "already has a value (3)" in await typed.refused("set env deploy/web A=5 --overwrite=false")


def test_variables_keep_their_order() -> None:
    there = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    new = [{"name": "C", "value": "3"}, {"name": "A", "value": "4"}, {"name": "A", "value": "5"}]
    assert updated(there, new, ["B"]) == [{"name": "A", "value": "4"}, {"name": "C", "value": "3"}]


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("web", "*", True),
        ("web", "web", True),
        ("web", "w*", True),
        ("web", "we", False),
        ("web", "*b", True),
        ("web", "w?b", False),
        ("web", "e*", True),
        ("web", "*e", False),
        ("web", "x*", False),
    ],
)
def test_only_asterisks_are_wildcards(name: str, pattern: str, fits: bool) -> None:
    assert matches(name, pattern) is fits


async def test_subjects(typed: Typed) -> None:
    await typed("create rolebinding b --clusterrole=view --user=ann")
    assert await typed("set subject rolebinding b --user=ann --user=bob") == (
        "rolebinding.rbac.authorization.k8s.io/b subjects updated\n"
    )
    assert await typed("set subject rolebinding b --user=bob") == ""
    assert [one["name"] for one in json.loads(await typed("get rolebinding b -o json"))["subjects"]] == ["ann", "bob"]


async def test_selectors_of_services_only(typed: Typed) -> None:
    await typed("create service clusterip s --tcp=80")
    await typed("create rolebinding b --clusterrole=view")
    assert await typed("set selector svc s a=b") == "service/s selector updated\n"
    assert json.loads(await typed("get svc s -o json"))["spec"]["selector"] == {"a": "b"}
    assert "only supported for Services" in await typed.refused("set selector rolebinding b a=b")
    assert "the object has been modified" in await typed.refused("set selector svc s a=c --resource-version=1")


def test_local_files_need_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed_offline("create deployment web --image=a --dry-run=client -o yaml", tmp_path)
    made = typed_offline("create deployment web --image=a --dry-run=client -o yaml", tmp_path).out
    done = typed_offline("set image -f - --local -o yaml a=b", tmp_path, stdin=made)
    assert done.out == made.replace("image: a", "image: b")
    assert "you must specify resources by --filename" in typed_offline("set image x/y --local a=b", tmp_path).err
