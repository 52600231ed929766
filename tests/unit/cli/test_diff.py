"""`diff`."""

from __future__ import annotations

import os

import pytest
from command_line import Typed
from local_server import LocalServer

PATH = os.environ["PATH"]


def config_map(data: str = "{a: b}", name: str = "one") -> str:
    return f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {data}}}\n"


@pytest.mark.parametrize("path", [PATH, "/nowhere"], ids=["program", "built-in"])
async def test_diff_shows_what_apply_would_change(typed: Typed, local_server: LocalServer, path: str) -> None:
    await typed("apply -f -", config_map("{a: b, gone: x}"))
    assert await typed("diff -f -", config_map("{a: b, gone: x}"), PATH=path) == ""
    done = await typed.run("diff -f -", config_map("{a: c}"), PATH=path)
    assert done.code == 1
    changed = [line for line in done.out.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["-  a: b", "-  gone: x", "+  a: c"]
    assert "/v1.ConfigMap.default.one" in done.out
    assert "managedFields" not in done.out
    assert (await local_server.client.get(("v1", "ConfigMap"), "one", "default"))["data"] == {"a": "b", "gone": "x"}


async def test_a_new_object_is_shown_as_added(typed: Typed) -> None:
    done = await typed.run("diff -f -", config_map(), PATH=PATH)
    assert done.code == 1
    assert "+data:\n+  a: b\n" in done.out
    assert (await typed.run("diff --server-side -f -", config_map(), PATH=PATH)).code == 1


async def test_secrets_are_masked(typed: Typed) -> None:
    def secret(data: str) -> str:
        return f"{{apiVersion: v1, kind: Secret, metadata: {{name: s}}, data: {data}}}"

    await typed("create -f -", secret("{a: eA==, same: eA==, gone: eA==}"))
    done = await typed.run("diff -f -", secret("{a: eQ==, same: eA==, new: eQ==}"), PATH=PATH)
    assert "-  a: '*** (before)'\n+  a: '*** (after)'\n" in done.out
    assert "+  new: '***'\n" in done.out
    assert "eQ==" not in done.out
    shown = await typed.run("diff --show-secrets -f -", secret("{a: eQ==}"), PATH=PATH)
    assert "+  a: eQ==\n" in shown.out


async def test_an_external_diff_program_is_used(typed: Typed) -> None:
    await typed("apply -f -", config_map())
    done = await typed.run("diff -f -", config_map("{a: c}"), PATH=PATH, KUBECTL_EXTERNAL_DIFF="diff -q -N -r")
    assert done.code == 1
    assert done.out.startswith("Files /")
    assert (await typed.run("diff -f -", config_map("{a: c}"), PATH=PATH, KUBECTL_EXTERNAL_DIFF="true")).code == 0


async def test_errors_exit_with_more_than_one(typed: Typed) -> None:
    for line, stdin in (("diff", ""), ("diff -f - --odd", ""), ("diff -f -", "{kind: X, apiVersion: v1}")):
        assert (await typed.run(line, stdin, PATH=PATH)).code == 2
    failed = await typed.run("diff -f -", config_map(), PATH=PATH, KUBECTL_EXTERNAL_DIFF="nowhere-to-be-found")
    assert (failed.code, failed.err) == (2, 'error: failed to run "nowhere-to-be-found": No such file or directory\n')


async def test_objects_to_be_pruned_are_shown(typed: Typed) -> None:
    await typed("apply -f -", config_map() + "---\n" + config_map(name="two"))
    line = "diff -f - --prune --prune-allowlist=core/v1/ConfigMap"
    done = await typed.run(line, config_map(), PATH=PATH)
    assert done.code == 1
    assert "-  name: two\n" in done.out
