"""`get` in all its forms: the same output by kubectl and by `setpoint`."""

from __future__ import annotations

import pytest
from comparing import Both

OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {app: web, tier: front}}
data: {a: "1", b: "two\\nlines"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two, labels: {app: web, tier: back}}
data: {a: "10", b: "x"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: three, labels: {app: other}, annotations: {note: "<b>&amp;</b>"}}
data: {a: "9"}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, labels: {app: web}}
spec: {containers: [{name: main, image: nginx}, {name: side, image: busybox}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:1.27"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
"""


@pytest.fixture(scope="module")
def found(both: Both) -> Both:
    both.given(OBJECTS)
    return both


def test_tables(found: Both) -> None:
    found.reads("""
        get pods
        get po
        get pod/alone
        get pods alone
        get cm
        get configmaps one two
        get cm/one cm/three
        get cm,pods
        get cm,po,deploy,svc
        get deployments.apps
        get deployments.v1.apps web
        get all
        get pods -o wide
        get deploy -o wide
        get cm --show-labels
        get cm -L app -L tier
        get cm --label-columns=app,tier
        get cm --no-headers
        get cm,pods --no-headers
        get cm --show-kind
        get cm -l app=web
        get cm -l 'tier in (front, back)'
        get cm -l app!=web
        get cm --field-selector metadata.name=one
        get cm --sort-by=.metadata.name
        get cm --sort-by='{.data.a}'
        get cm --sort-by=.metadata.labels.tier
        get secrets
        get namespaces {ns}
        get ns
        get cm -A -l app=web
        get cm,ns -A
        get ns,cm -A
        get cm --chunk-size=1
        get cm --server-print=false
        get nodes
        get cm one --ignore-not-found
        get cm nope --ignore-not-found
        get cm -w=false
    """)


def test_documents(found: Both) -> None:
    found.reads("""
        get cm one -o yaml
        get cm one -o json
        get cm -o yaml
        get cm -o json
        get cm/one cm/two -o yaml
        get cm one -o name
        get cm,pods -o name
        get deploy web -o yaml
        get deploy web -o json --show-managed-fields
        get deploy web --subresource=scale -o yaml
        get deploy web --subresource=status -o name
        get cm one -o jsonpath={.data.a}
        get cm -o jsonpath='{range .items[*]}{.metadata.name}{"\\t"}{.data.a}{"\\n"}{end}'
        get cm -o jsonpath='{.items[?(@.data.a=="9")].metadata.name}'
        get cm one -o jsonpath-as-json='{.data}'
        get cm one -o go-template='{{.metadata.name}} {{.data}} {{.nope}}'
        get cm -o go-template='{{range .items}}{{.metadata.name}}={{.data.a}};{{end}}'
        get cm one --template='{{len .data}}'
        ! get cm one -o go-template='{{.metadata.name.first}}'
        ! get cm one -o go-template='{{.metadata.name'
        get cm -o custom-columns=NAME:.metadata.name,A:.data.a,NONE:.data.zzz
        get cm -o custom-columns=NAME:.metadata.name --no-headers
        get secrets -o yaml
        get secrets -o name
        get cm nope -o yaml --ignore-not-found
        get cm -o yaml --sort-by=.data.a
        get --raw /api/v1/namespaces/{ns}/configmaps/one
        get --raw /version
        get --raw /healthz
    """)


def test_files(found: Both) -> None:
    (found.home / "some.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}\n---\n"
        "{apiVersion: v1, kind: Pod, metadata: {name: alone}}\n"
    )
    (found.home / "wrong.yaml").write_text("a: b: c\n")
    (found.home / "kindless.yaml").write_text("a: b\n")
    found.reads("""
        get -f some.yaml
        get -f some.yaml -o name
        get -f some.yaml -o yaml
        ! get -f missing.yaml
        ! get -f wrong.yaml
        ! get -f kindless.yaml
        ! get -f some.yaml pods
    """)
    found.reads("get -f -", stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: two}}")


def test_invalid_command_lines(found: Both) -> None:
    found.reads("""
        ! get
        ! get nope
        ! get pods nope
        ! get cm one nope
        ! get cm one nope -o yaml
        ! get cm/one pods
        ! get cm/one/two
        ! get cm/
        ! get cm one -A
        ! get cm one -l app=web
        ! get cm -l 'a=b=c'
        ! get cm --field-selector spec.nope=1
        ! get cm -o nope
        ! get cm -o jsonpath
        ! get cm -o jsonpath={.a
        ! get cm -o custom-columns
        ! get cm -o go-template='{{.x'
        ! get cm --show-labels -o yaml
        ! get cm --output-watch-events
        ! get cm,pods --watch
        ! get --raw nope
        ! get --raw /nope
        ! get cm --nope
        ! get cm -o
        ! get deploy --subresource=scale
        ! get cm one --subresource=status
    """)


def test_describe(found: Both) -> None:
    """Events of several objects are shown when they are asked for, as by kubectl 1.34 and later."""
    (found.home / "alone.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: alone}}")
    found.reads("""
        describe cm three
        describe cm/three
        ! describe cm/three secrets/nope --show-events
        describe cm -l app=other
        describe cm th --show-events
        describe cm -l app=nope
        describe deploy web
        describe pod alone
        describe pods
        describe svc web
        describe -f alone.yaml
        describe ns {ns}
        describe secrets
        ! describe
        ! describe nope
        ! describe cm nope
        ! describe cm three nope --show-events
        ! describe cm three -A
    """)
