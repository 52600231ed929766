"""`explain`, `auth`, `events`, `top`, `cluster-info` and `certificate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Typed
from hypothesis import given
from hypothesis import strategies as st
from local_server import LocalServer

from setpoint.cli.explaining import Explainer, indent, wrap, wrapped
from setpoint.cli.failures import Failed
from setpoint.cli.verbs.auth.reconcile import uncovered


@pytest.mark.parametrize(
    ("text", "limit", "out"),
    [
        ("", 5, ""),
        ("one two", 20, "one two"),
        ("one two three", 7, "one two\nthree"),
        ("one  two", 5, "one\ntwo"),
        ("longerthanaline x", 5, "longerthanaline\nx"),
        ("a\n\nb", 5, "a\n\nb"),
        ("a b ", 3, "a b"),
        ("a\u00a0b c", 3, "a\u00a0b\nc"),
    ],
)
def test_lines_are_broken_at_blanks(text: str, limit: int, out: str) -> None:
    assert wrap(text, limit) == out


@given(st.text(alphabet="ab \n", max_size=60), st.integers(1, 12))
def test_words_are_not_broken(text: str, limit: int) -> None:
    lines = wrap(text, limit).split("\n")
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= limit or any(len(word) >= limit for word in line.split()) for line in lines)


def test_indentation_of_every_line() -> None:
    assert indent("a\nb\n", 2) == "  a\n  b\n  "


def test_the_older_format_keeps_lists_and_indentation() -> None:
    assert wrapped("what:\n- one two\n- three\n    code\n\nend of it", 9) == [
        "what:",
        "- one two",
        "- three",
        "    code",
        "",
        "end of it",
    ]


def test_recursive_fields() -> None:
    kind = {"group": "", "kind": "Tree", "version": "v1"}
    document = {
        "paths": {"/api/v1/trees": {"get": {"x-kubernetes-group-version-kind": kind}}},
        "components": {
            "schemas": {
                "Tree": {
                    "x-kubernetes-group-version-kind": [kind],
                    "properties": {
                        "child": {"allOf": [{"$ref": "#/components/schemas/Tree"}]},
                        "size": {"type": "integer", "enum": [1, 2, 3, 4, 5]},
                    },
                    "required": ["size"],
                }
            }
        },
    }
    text = "".join(Explainer(document, recursive=True).explain("", "v1", "trees", []))
    assert text.endswith(
        "FIELDS:\n  child\t<Tree>\n    child\t<Tree>\n    size\t<integer> -required-\n    enum: 1, 2, 3, 4, ....\n"
        "  size\t<integer> -required-\n  enum: 1, 2, 3, 4, ....\n\n"
    )
    with pytest.raises(Failed, match='field "nothing" does not exist'):
        list(Explainer(document).explain("", "v1", "trees", ["child", "nothing"]))


async def test_explain(typed: Typed) -> None:
    told = await typed("explain deploy.spec.replicas")
    assert told.startswith(
        "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n\nFIELD: replicas <integer>\n\n\n"
    )
    assert (await typed.run("explain pods.nothing")).out == "KIND:       Pod\nVERSION:    v1\n\n"
    assert "RESOURCE: spec <Object>" in await typed("explain pods.spec --output=plaintext-openapiv2")


async def test_auth_can_i(typed: Typed) -> None:
    assert await typed("auth can-i create pods") == "yes\n"
    done = await typed.run("auth can-i create pods --as=nobody")
    assert (done.code, done.out) == (1, "no\n")
    assert (await typed.run("auth can-i create pods --as=nobody -q")).out == ""
    done = await typed.run("auth can-i dance nodes")
    assert done.err == (
        "Warning: resource 'nodes' is not namespace scoped\n\nWarning: verb 'dance' is not a known verb\n\n"
    )
    assert "Username    ann\n" in await typed("auth whoami --as=ann")


def test_covered_rules() -> None:
    having = [
        {"apiGroups": [""], "resources": ["pods", "*/log"], "verbs": ["get"]},
        {"nonResourceURLs": ["/api/*"], "verbs": ["*"]},
        {"apiGroups": ["a"], "resources": ["b"], "verbs": ["get"], "resourceNames": ["n"]},
    ]
    wanted = [
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/api/v1", "/metrics"], "verbs": ["get"]},
        {"apiGroups": ["a"], "resources": ["b"], "verbs": ["get"]},
    ]
    assert uncovered(having, wanted) == [
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods/log"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        {"verbs": ["get"], "apiGroups": ["a"], "resources": ["b"]},
    ]


async def test_reconcile_removes_nothing_by_default(typed: Typed) -> None:
    def role(verbs: str) -> str:
        return (
            '{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},'
            f'"rules":[{{"apiGroups":[""],"resources":["pods"],"verbs":{verbs}}}]}}'
        )

    async def verbs() -> list[str]:
        return [verb for rule in json.loads(await typed("get role r -o json"))["rules"] for verb in rule["verbs"]]

    done = await typed.run("auth reconcile -f -", role('["get"]'))
    assert (done.out, done.err.splitlines()[0]) == (
        "role.rbac.authorization.k8s.io/r reconciled\n",
        "\treconciliation required create",
    )
    await typed("auth reconcile -f -", role('["list"]'))
    assert await verbs() == ["get", "list"]
    await typed("auth reconcile -f - --remove-extra-permissions", role('["list"]'))
    assert await verbs() == ["list"]


async def test_events(typed: Typed, local_server: LocalServer) -> None:
    def event(name: str, second: int, **more: object) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "apiVersion": "v1"},
            "reason": name.title(),
            "message": "it\x1b[31m happened ",
            "type": "Normal",
            "firstTimestamp": f"2029-12-31T23:59:{second:02}Z",
            "lastTimestamp": f"2029-12-31T23:59:{second:02}Z",
            **more,
        }

    assert (await typed.run("events")).err == "No events found in default namespace.\n"
    await local_server.client.create(event("later", 50))
    await local_server.client.create(event("sooner", 40, count=3, type="Warning"))
    assert await typed("events") == (
        "LAST SEEN          TYPE      REASON   OBJECT   MESSAGE\n"
        "20s (x3 over 20s)  Warning   Sooner   Pod/p    it^[[31m happened\n"
        "10s                Normal    Later    Pod/p    it^[[31m happened\n"
    ).replace("20s (x3 over 20s)  ", "20s (x3 over 20s)   ").replace("SEEN          ", "SEEN           ").replace(
        "10s                ", "10s                 "
    )
    assert (await typed("events --for pod/p --types=warning --no-headers")).count("\n") == 1
    assert (await typed.run("events --for pod/q")).out == ""


async def test_cluster_info(typed: Typed, tmp_path: Path) -> None:
    assert (await typed("cluster-info")).startswith("Kubernetes control plane is running at https://local\n")
    await typed(f"cluster-info dump --output-directory={tmp_path}/state --namespaces=default")
    assert json.loads((tmp_path / "state" / "nodes.json").read_text())["kind"] == "NodeList"
    assert sorted(path.name for path in (tmp_path / "state" / "default").iterdir()) == [
        "daemonsets.json",
        "deployments.json",
        "events.json",
        "pods.json",
        "replicasets.json",
        "replication-controllers.json",
        "services.json",
    ]


async def test_top_without_metrics(typed: Typed) -> None:
    done = await typed.run("top node")
    assert done.code == 1
    assert "Metrics API not available" in done.err or "metrics not available yet" in done.err
