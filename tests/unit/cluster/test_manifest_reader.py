"""States and recordings in YAML: manifests, and the format of `kwokctl snapshot record`."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from setpoint.cluster.cluster_copy import last_copy
from setpoint.cluster.kwok_writer import kwok_documents
from setpoint.cluster.manifest_reader import opened_state
from setpoint.cluster.snapshot_file import InvalidSnapshot, SnapshotReader, StateReader

NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
RECORDING = """\
apiVersion: v1
kind: Namespace
metadata:
  creationTimestamp: "$(time-offset-nanosecond -60000000000)"
  name: shop
  uid: 1d0b9c7e-2a54-4a6b-9d6b-6b0f5f3f0001
spec:
  finalizers: [kubernetes]
status:
  phase: Active
---
apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: $(time-offset-nanosecond -30000000000)
  name: web
  namespace: shop
  uid: 1d0b9c7e-2a54-4a6b-9d6b-6b0f5f3f0002
spec:
  containers:
  - image: nginx:1.27
    name: web
  - image: helper:1
    name: helper
status:
  conditions:
  - lastTransitionTime: $(time-offset-nanosecond -30000000000)
    status: "True"
    type: PodScheduled
  phase: Pending
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: 3500000000
kind: ResourcePatch
method: patch
resource:
  resource: pods
  version: v1
target:
  name: web
  namespace: shop
template:
  spec:
    $setElementOrder/containers:
    - name: web
    - name: helper
    containers:
    - image: nginx:1.28
      name: web
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: 1250000000
kind: ResourcePatch
method: patch
resource:
  resource: pods
  version: v1
target:
  name: web
  namespace: shop
template:
  status:
    $setElementOrder/conditions:
    - type: PodScheduled
    - type: Ready
    conditions:
    - lastTransitionTime: $(time-offset-nanosecond 1250000000)
      status: "True"
      type: Ready
    phase: Running
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: 4000000000
kind: ResourcePatch
method: create
resource:
  resource: configmaps
  version: v1
target:
  name: settings
  namespace: shop
template:
  apiVersion: v1
  kind: ConfigMap
  metadata:
    creationTimestamp: $(time-offset-nanosecond 4000000000)
    name: settings
    namespace: shop
    uid: 1d0b9c7e-2a54-4a6b-9d6b-6b0f5f3f0003
  data:
    a: b
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: 5000000000
kind: ResourcePatch
method: delete
resource:
  resource: pods
  version: v1
target:
  name: web
  namespace: shop
"""
"""Written by hand after KWOK's types: two objects of the state, and four changes, of which two are out of order."""


def reader_of(path: Path, text: str, compressed: bool = False) -> StateReader:
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    return opened_state(path, NOW)


def values(reader: StateReader) -> dict[str, dict[str, Any]]:
    return {item.key: orjson.loads(item.value) for item in reader.objects()}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_recording_of_kwok_is_read(tmp_path: Path, compressed: bool) -> None:
    reader = reader_of(tmp_path / "recording.yaml", RECORDING, compressed)
    assert reader.header.recording and (reader.header.revision, reader.header.at) == (2, "2026-03-01T12:00:00Z")
    assert reader.header.left_out == ()
    found = values(reader)
    assert sorted(found) == ["core/namespaces/shop", "core/pods/shop/web"]
    pod = found["core/pods/shop/web"]
    assert pod["metadata"]["creationTimestamp"] == "2026-03-01T11:59:30Z", "times are relative to the beginning"
    assert pod["metadata"]["resourceVersion"] == "2" and pod["metadata"]["uid"].endswith("0002")
    assert pod["spec"]["restartPolicy"] == "Always", "defaults are set"
    assert pod["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"

    changes = [*reader.changes()]
    begin = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    assert [(each.revision, each.at - begin, each.cause) for each in changes] == [
        (3, 1250, []),
        (4, 3500, []),
        (5, 4000, []),
        (6, 5000, []),
    ]
    assert reader.complete and reader.ended_at == begin + 5000
    ready, updated = (orjson.loads(each.writes[0][1] or b"") for each in changes[:2])
    assert [each["type"] for each in ready["status"]["conditions"]] == ["PodScheduled", "Ready"]
    assert ready["status"]["conditions"][1]["lastTransitionTime"] == "2026-03-01T12:00:01Z"
    assert ready["status"]["phase"] == "Running" and ready["spec"]["containers"][0]["image"] == "nginx:1.27"
    assert [each["image"] for each in updated["spec"]["containers"]] == ["nginx:1.28", "helper:1"]
    assert updated["metadata"]["resourceVersion"] == "4" and updated["status"] == ready["status"]
    assert changes[3].writes == (("core/pods/shop/web", None),)
    last = last_copy(opened_state(tmp_path / "recording.yaml", NOW))
    assert sorted(last.objects) == ["core/configmaps/shop/settings", "core/namespaces/shop"]


def test_what_is_exported_is_read_again(tmp_path: Path) -> None:
    """A recording is the same after it was written in KWOK's format, except for revisions."""
    text = b"".join(kwok_documents(reader_of(tmp_path / "a.yaml", RECORDING))).decode()
    assert "resourceVersion" not in text and "2026-03-01" not in text
    assert text.count("\nkind: ResourcePatch\n") == 4 and text.count("---\n") == 5
    assert "\ndurationNanosecond: 1250000000\n" in text and "\n    $setElementOrder/conditions:\n" in text
    first, again = opened_state(tmp_path / "a.yaml", NOW), reader_of(tmp_path / "b.yaml", text)
    assert values(again) == values(first)
    assert [*again.changes()] == [*first.changes()]


CUSTOM = """\
apiVersion: example.com/v1
kind: Teapot
metadata: {name: brown}
spec: {cups: [1, 2]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teapots.example.com}
spec:
  group: example.com
  names: {kind: Teapot, plural: teapots, shortNames: [tp]}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: 10
kind: ResourcePatch
method: patch
resource: {group: example.com, resource: teapots, version: v1}
target: {name: brown}
template: {spec: {cups: [3]}}
---
apiVersion: action.kwok.x-k8s.io/v1alpha1
durationNanosecond: 20
kind: ResourcePatch
method: delete
resource: {group: other.example.com, resource: kettles, version: v1}
target: {name: black}
"""


def test_custom_kinds_are_known_by_the_definitions_of_the_file(tmp_path: Path) -> None:
    reader = reader_of(tmp_path / "custom.yaml", CUSTOM)
    assert values(reader)["example.com/teapots/brown"]["spec"] == {"cups": [1, 2]}
    (change,) = reader.changes()
    assert orjson.loads(change.writes[0][1] or b"")["spec"] == {"cups": [3]}, "lists are replaced"
    assert reader.header.left_out == (
        "1 objects or changes of kettles.other.example.com were left out: the file has no definition of this kind.",
    )


MANIFESTS = """\
# A comment before the first document
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec:
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}}
      spec: {containers: [{name: c, image: nginx}]}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}
- {apiVersion: example.com/v1, kind: Unknown, metadata: {name: x}}
---
"""


def test_manifests_are_a_state(tmp_path: Path) -> None:
    reader = reader_of(tmp_path / "web.yaml", MANIFESTS)
    found = values(reader)
    assert sorted(found) == ["apps/deployments/shop/web", "core/configmaps/default/plain", "core/namespaces/shop"]
    web = found["apps/deployments/shop/web"]
    assert web["spec"]["replicas"] == 1 and web["spec"]["strategy"]["type"] == "RollingUpdate"
    assert web["metadata"]["generation"] == 1 and web["metadata"]["creationTimestamp"] == "2026-03-01T12:00:00Z"
    assert len(web["metadata"]["uid"]) == 36
    assert values(opened_state(tmp_path / "web.yaml", NOW)) == found, "uids depend on the name alone"
    assert not reader.header.recording and [*reader.changes()] == [] and reader.complete
    assert reader.header.left_out == (
        "1 objects or changes of example.com/v1 Unknown were left out: the file has no definition of this kind.",
        "Namespace shop was added: objects of the file are in it.",
    )


PATCH = "apiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\nresource: {resource: pods, version: v1}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("just text", "document 1 (line 1): an object is a mapping, not str"),
        ("a: [", "document 1 (line 1): "),
        ("a: 1", "document 1 (line 1): it has no apiVersion and kind"),
        ("---\n---\napiVersion: v1\nkind: Pod\nmetadata: {}\n", "document 1 (line 3): it has no metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: 5\n", "Pod a is not valid: "),
        (PATCH, "durationNanosecond is not a number of nanoseconds since the beginning"),
        (PATCH + "durationNanosecond: -1", "durationNanosecond is not a number"),
        (PATCH + "durationNanosecond: 1", "it has no target"),
        (PATCH + "durationNanosecond: 1\ntarget: {name: a}", "the method is None, not create, patch or delete"),
        (PATCH + "durationNanosecond: 1\ntarget: {name: a}\nmethod: create", "its template is not an object"),
        (
            PATCH + "durationNanosecond: 1\ntarget: {name: a}\nmethod: patch\ntemplate: {}",
            "it changes core/pods/default/a, which does not exist then",
        ),
        (
            PATCH + "durationNanosecond: 1\ntarget: {name: a}\nmethod: create\ntemplate: {metadata: {name: b}}",
            "its object has another name than its target",
        ),
        (
            PATCH + "durationNanosecond: 1\n---\napiVersion: v1\nkind: Pod\n",
            "document 2 (line 6): an object of kind Pod follows the changes",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidSnapshot) as found:
        [*reader_of(tmp_path / "wrong.yaml", text).changes()]
    assert problem in str(found.value) and str(tmp_path) in str(found.value)


def test_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "cut.setpoint").write_bytes(gzip.compress(b'{"format":1}\n')[:12])
    with pytest.raises(InvalidSnapshot):
        opened_state(tmp_path / "cut.setpoint", NOW)
    header = b'{"format":1,"revision":3,"at":"2026-01-01T00:00:00Z"}\n{"end":{}}\n'
    (tmp_path / "a.setpoint").write_bytes(gzip.compress(header))
    assert isinstance(opened_state(tmp_path / "a.setpoint", NOW), SnapshotReader)
    with pytest.raises(OSError, match="absent"):
        opened_state(tmp_path / "absent", NOW)
