"""`apply` on custom resources, on terminating objects, and by kubectl and `setpoint` in turn on the same objects."""

from __future__ import annotations

import pytest
from comparing import Both
from written_objects import MAP, WEB, WEB_CHANGED

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
THING = """
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing, labels: {a: b}}
spec: {list: [{name: a, x: 1}, {name: b}], map: {k: v, gone: x}, number: 1.5, flag: true}
"""
THING_CHANGED = """
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing}
spec: {list: [{name: b}], map: {k: w}, new: {}}
"""


@pytest.fixture(scope="module", autouse=True)
def prepared(both: Both) -> Both:
    both.smooth.append((r" from NAMESPACE namespace", ""))
    both.smooth.append((r"(/tmp/)?(LIVE|MERGED)-[^/ \t]*", r"\2"))
    both.smooth.append((r"\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", ""))
    both.given(DEFINITION)
    both.reads("wait --for=condition=Established crd/things.example.com -o name")
    return both


def test_apply_of_custom_resources(both: Both) -> None:
    both.writes("apply -f -", stdin=THING)
    both.writes("apply -f -", stdin=THING)
    both.writes("! diff -f -", stdin=THING_CHANGED)
    both.writes("apply -f -", stdin=THING_CHANGED)
    both.writes("get thing thing -o yaml --show-managed-fields")
    both.writes("apply view-last-applied thing/thing")
    both.writes("""
        ! patch thing thing -p '{"spec":{"a":1}}'
        patch thing thing --type=merge -p '{"spec":{"a":1}}'
        patch thing thing --type=json -p '[{"op":"test","path":"/spec/a","value":1},{"op":"remove","path":"/spec/a"}]'
        patch thing thing --type=merge --subresource=status -p '{"status":{"ready":true}}' -o yaml
        wait --for=jsonpath={.status.ready}=true thing/thing
        label things --all x=z
        annotate thing/thing n=m
        ! patch --local -f nowhere -p {}
    """)
    both.writes("! patch --local -f - -p 'spec: {a: 1}'", stdin=THING)
    both.writes("patch --local -f - --type=merge -p 'spec: {a: 1}' -o yaml", stdin=THING)
    both.writes("replace -f -", stdin=THING)
    both.writes("apply --server-side --force-conflicts -f -", stdin=THING)
    both.writes("get thing thing -o yaml")
    both.writes("edit thing thing", KUBE_EDITOR="sed -i s/true/false/")
    both.writes("delete things --all")
    both.writes("! apply -f -", stdin=THING.replace("Thing", "Nothing") + "---" + MAP.replace("one", "beside"))


def test_apply_of_terminating_objects(both: Both) -> None:
    held = MAP.replace("one, ", "held, finalizers: [example.com/hold], ")
    both.writes("apply -f -", stdin=held)
    both.writes("! delete cm held --timeout=1s")
    both.writes("delete cm held --wait=false")
    both.writes("apply -f -", stdin=held.replace("two", "three"))
    both.writes("! wait --for=delete cm/held --timeout=1s")
    both.writes("apply -f -", stdin=held.replace(", finalizers: [example.com/hold]", ""))
    both.writes("wait --for=delete cm/held --timeout=5s")


def test_alternating_applies_of_one_object(both: Both) -> None:
    """What one has applied is known to the other: the same object, in one namespace."""
    first, then = WEB.replace("name: web", "name: turn"), WEB_CHANGED.replace("name: web", "name: turn")
    said = [
        both.theirs_does("apply -f -", first),
        both.ours_does("apply -f -", first),
        both.ours_does("apply -f -", then),
        both.theirs_does("apply -f -", then),
        both.theirs_does("apply -f -", first),
        both.ours_does("diff -f -", first),
        both.ours_does("apply --server-side --force-conflicts -f -", first),
        both.theirs_does("apply --server-side -f -", first),
        both.ours_does("apply -f -", first),
    ]
    assert said == [
        "deployment.apps/turn created\n",
        "deployment.apps/turn unchanged\n",
        "deployment.apps/turn configured\n",
        "deployment.apps/turn unchanged\n",
        "deployment.apps/turn configured\n",
        "",
        "deployment.apps/turn serverside-applied\n",
        "deployment.apps/turn serverside-applied\n",
        "deployment.apps/turn unchanged\n",
    ]


def test_alternating_applies_with_applysets(both: Both) -> None:
    line = "apply -f - --prune --applyset=turns"
    one, two = MAP.replace("one", "t1"), MAP.replace("one", "t2")
    assert both.theirs_does(line, one + "---" + two, KUBECTL_APPLYSET="true").count("created") == 2
    assert both.ours_does(line, two) == "configmap/t2 unchanged\nconfigmap/t1 pruned\n"
    assert both.theirs_does(line, one, KUBECTL_APPLYSET="true") == "configmap/t1 created\nconfigmap/t2 pruned\n"
