"""Objects created from arguments: the requests, and dry runs without requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Typed, typed_offline

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  creationTimestamp: null
  labels:
    app: web
  name: web
spec:
  replicas: 2
  selector:
    matchLabels:
      app: web
  strategy: {}
  template:
    metadata:
      creationTimestamp: null
      labels:
        app: web
    spec:
      containers:
      - command:
        - sleep
        - "10"
        image: nginx:1
        name: nginx
        ports:
        - containerPort: 80
        resources: {}
status: {}
"""


def test_client_dry_runs_need_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "create deployment web --image=nginx:1 --replicas=2 --port=80 --dry-run=client -o yaml -- sleep 10"
    done = typed_offline(line, tmp_path)
    assert (done.out, done.code) == (DEPLOYMENT, 0)


async def test_dry_runs_store_nothing_and_are_marked(typed: Typed) -> None:
    assert await typed("create cm c --dry-run=client") == "configmap/c created (dry run)\n"
    assert await typed("create cm c --dry-run=server") == "configmap/c created (server dry run)\n"
    assert await typed("create cm c") == "configmap/c created\n"
    assert await typed.refused("create cm c") == ('error: failed to create configmap: configmaps "c" already exists\n')


async def test_fields_are_in_the_order_of_the_type(typed: Typed) -> None:
    made = await typed("create cm c --from-literal=b=1 --from-literal=a=2 --save-config --dry-run=client -o json")
    assert list(json.loads(made)) == ["kind", "apiVersion", "metadata", "data"]
    kept = json.loads(made)["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert kept == (
        '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"default","creationTimestamp":null},'
        '"data":{"a":"2","b":"1"}}\n'
    )


async def test_a_flag_may_shadow_a_global_one(typed: Typed) -> None:
    made = json.loads(await typed("create rolebinding b --role=r --user=ann --user=bob --dry-run=client -o json"))
    assert [one["name"] for one in made["subjects"]] == ["ann", "bob"]


async def test_invalid_container_names_get_a_random_suffix(typed: Typed) -> None:
    made = json.loads(await typed("create deployment d --image=a/b_c.d:1 --dry-run=client -o json"))
    name = made["spec"]["template"]["spec"]["containers"][0]["name"]
    assert name.startswith("b-c-d-") and len(name) == len("b-c-d-") + 5


async def test_a_job_from_a_cron_job(typed: Typed) -> None:
    await typed("create cronjob tick --image=busybox --schedule='* * * * *' -- date")
    await typed("create job now --from=cronjob/tick")
    made = json.loads(await typed("create job later --from=cj/tick --dry-run=client -o json"))
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "tick", True)
    assert made["metadata"]["annotations"] == {"cronjob.kubernetes.io/instantiate": "manual"}
    assert made["spec"]["template"]["spec"]["containers"][0]["command"] == ["date"]
    assert "unknown object type *v1.CronJob" not in await typed.refused("create job x --from=cronjob/nothing")


async def test_roles_resolve_resources_by_discovery(typed: Typed) -> None:
    made = json.loads(
        await typed("create role r --verb=get,list --resource=deploy,pods/log,po --dry-run=client -o json")
    )
    assert made["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods/log", "pods"]},
        {"verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["deployments"]},
    ]
    refused = await typed.refused("create role r --verb=get --resource=nothings")
    assert refused == 'error: the server doesn\'t have a resource type "nothings"\n'
    done = await typed.run("create role r --verb=dance --resource=pods --dry-run=client -o name")
    assert (done.code, done.err) == (0, "Warning: 'dance' is not a standard resource verb\n")


async def test_files_and_env_files(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "bytes").write_bytes(b"\xff\x00")
    (tmp_path / "d" / "text").write_text("a\n")
    (tmp_path / "x.env").write_bytes(b"\xef\xbb\xbfA=b\n# no\n\nGIVEN\nC=d=e \n")
    (tmp_path / "broken.env").write_bytes(b"A=\xff\n")
    made = json.loads(await typed(f"create cm c --from-file={tmp_path}/d --dry-run=client -o json"))
    assert (made["data"], made["binaryData"]) == ({"text": "a\n"}, {"bytes": "/wA="})
    made = json.loads(await typed(f"create cm c --from-env-file={tmp_path}/x.env --dry-run=client -o json", GIVEN="1"))
    assert made["data"] == {"A": "b", "GIVEN": "1", "C": "d=e "}
    refused = await typed.refused(f"create secret generic s --from-env-file={tmp_path}/broken.env")
    assert refused.endswith("contains invalid utf8 bytes at line 1: [65 61 255]\n")


async def test_a_token_is_requested(typed: Typed) -> None:
    await typed("create sa bot")
    assert (await typed("create token bot --duration=10m --audience=a")).count(".") == 2
    assert await typed.refused("create token nobody") == (
        'error: failed to create token: serviceaccounts "nobody" not found\n'
    )


async def test_messages_name_the_full_subcommand_of_an_alias(typed: Typed) -> None:
    assert await typed.refused("create ns") == (
        "error: exactly one NAME is required, got 0\nSee 'setpoint create namespace -h' for help and examples\n"
    )
