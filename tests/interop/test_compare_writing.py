"""create -f, apply, delete, patch, replace, label, annotate, wait, diff: told alike by kubectl and by `setpoint`."""

from __future__ import annotations

import pytest
from comparing import Both
from written_objects import MAP, SERVICE, WEB, WEB_CHANGED


@pytest.fixture(scope="module", autouse=True)
def smoothed(both: Both) -> Both:
    # What kubectl says since 1.34, and the newest one that is installed may not say yet.
    both.smooth.append((r" from NAMESPACE namespace", ""))
    both.smooth.append((r"\(y/N\)", "(y/n)"))
    both.smooth.append((r"(unchanged|configured) \(dry run\)", "configured (dry run)"))
    both.smooth.append((r"(configmap/l1) modified", r"\1 labeled"))
    both.smooth.append((r"(/tmp/)?(LIVE|MERGED)-[^/ \t]*", r"\2"))
    both.smooth.append((r"\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", ""))
    return both


def test_create(both: Both) -> None:
    both.writes("create -f -", stdin=MAP)
    both.writes("! create -f -", stdin=MAP + "---" + MAP.replace("one", "created"))
    both.writes("create -f - -o yaml --save-config", stdin=MAP.replace("one", "saved"))
    both.writes("create -f - -o json", stdin=MAP.replace("one", "json") + "---" + SERVICE)
    both.writes(
        """
        create -f - --dry-run=client
        create -f - --dry-run=client -o yaml
        create -f - --dry-run=client -o name
        create -f - --dry-run=server
        create -f - --dry-run=server -o jsonpath={.data.a}
        ! create -f - --dry-run=odd
        ! create -f - -o odd
        ! create -f - extra
        ! create -f - --validate=odd
        create -f - -l app=web --dry-run=server
        ! create -f - -l app=none
        """,
        stdin=MAP.replace("one", "dry"),
    )
    both.writes("! create -f -", stdin="{kind: Nothing, apiVersion: v1, metadata: {name: x}}")
    both.writes("! create -f -", stdin="{metadata: {name: x}}")
    both.writes("! create -f -", stdin=": : [")
    both.writes("! create -f -", stdin=MAP.replace("one", "odd") + "odd: 1\n")
    both.writes("create -f - --validate=warn", stdin=MAP.replace("one", "odd") + "odd: 1\n")
    both.writes("! create")
    both.writes("! create -f /nowhere")
    both.writes("! create -n other -f -", stdin=MAP.replace("name: one", "name: x, namespace: some"))
    listed = ",".join(map(_json, ("l1", "l2")))
    both.writes("create -f - -o name", stdin=f'{{"kind":"List","apiVersion":"v1","items":[{listed}]}}')


def _json(name: str) -> str:
    return f'{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}}}}'


def test_apply(both: Both) -> None:
    three = WEB + "---" + MAP.replace("one", "applied") + "---" + SERVICE.replace("name: web", "name: applied")
    both.writes("apply -f -", stdin=three)
    both.writes("apply -f -", stdin=three)
    both.writes("apply -f - -o yaml", stdin=three)
    both.writes("apply -f - -o json", stdin=MAP.replace("one", "applied"))
    both.writes("apply -f - -o json", stdin=MAP.replace("one", "applied") + "---" + MAP.replace("one", "applied-too"))
    both.writes("apply -f - -o name", stdin=three)
    both.writes("get deploy web -o yaml")
    both.writes("patch deploy web --type=merge -p 'metadata: {labels: {theirs: x}}'")
    both.writes("apply -f - --dry-run=server -o yaml", stdin=WEB_CHANGED)
    both.writes("apply -f -", stdin=WEB_CHANGED)
    both.writes("get deploy web -o yaml")
    both.writes("get deploy web -o yaml --show-managed-fields")
    both.writes("apply -f -", stdin=WEB_CHANGED)
    both.writes("apply -f -", stdin=WEB)
    both.writes("get deploy web -o yaml")
    both.writes("apply view-last-applied deploy/web")
    both.writes("apply view-last-applied deploy/web -o json")
    both.writes("apply set-last-applied -f -", stdin=WEB)
    both.writes("apply set-last-applied -f -", stdin=WEB_CHANGED)
    both.writes("! apply set-last-applied -f -", stdin=MAP.replace("one", "nowhere"))
    both.writes("! apply -f -", stdin=WEB.replace("{app: web}", "{app: other}"))
    both.writes("! apply -f -", stdin=WEB.replace("replicas: 2", "replicas: -2"))
    both.writes("! apply -f -", stdin="{kind: ConfigMap, apiVersion: v1, metadata: {generateName: x-}}")
    both.writes(
        """
        apply -f - --dry-run=client
        apply -f - --dry-run=server
        ! apply
        ! apply -f - --prune
        ! apply -f - --server-side --dry-run=client
        ! apply -f - --force-conflicts
        ! apply -f - --subresource=status
        ! apply -f - extra
        ! apply -f - --odd
        """,
        stdin=MAP.replace("one", "fresh"),
    )


def test_apply_by_the_server(both: Both) -> None:
    one = MAP.replace("one", "ssa")
    both.writes("apply --server-side -f -", stdin=one)
    both.writes("apply --server-side -f - -o yaml --show-managed-fields", stdin=one)
    both.writes("! apply --server-side -f - --field-manager=other", stdin=one.replace('"1"', '"9"'))
    both.writes("apply --server-side -f - --field-manager=other --force-conflicts", stdin=one.replace('"1"', '"9"'))
    both.writes("get cm ssa -o yaml --show-managed-fields")
    both.writes("apply --server-side -f - --dry-run=server", stdin=one.replace("ssa", "ssa-dry"))
    both.writes("apply -f -", stdin=WEB.replace("name: web", "name: moved"))
    moved = WEB.replace("name: web", "name: moved").replace("nginx:1", "nginx:2").replace("  replicas: 2\n", "")
    both.writes("apply --server-side -f -", stdin=moved)
    both.writes("get deploy moved -o yaml --show-managed-fields")
    both.writes("apply -f -", stdin=WEB.replace("name: web", "name: moved"))
    both.writes("get deploy moved -o yaml")


def test_prune(both: Both) -> None:
    labelled = MAP.replace("app: web", "prune: me")
    both.writes("apply -f -", stdin=labelled.replace("one", "p1") + "---" + labelled.replace("one", "p2"))
    line = "apply -f - --prune -l prune=me --prune-allowlist=core/v1/ConfigMap"
    both.writes(line + " --dry-run=client", stdin=labelled.replace("one", "p1"))
    both.writes(line + " --dry-run=server", stdin=labelled.replace("one", "p1"))
    both.writes(line, stdin=labelled.replace("one", "p1"))
    both.writes("get cm -l prune=me -o name")
    both.writes(line.replace("core/v1/ConfigMap", "odd").replace("apply", "! apply", 1), stdin=labelled)
    both.smooth.append((r"kubectl/v1\.\d+\.\d+[^\s\"]*", "kubectl/VERSION"))
    both.smooth.append((r"applyset-[\w-]{43}-v1", "APPLYSET"))
    line = "apply -f - --prune --applyset=parts"
    environment = {"KUBECTL_APPLYSET": "true"}
    both.writes(line, stdin=MAP.replace("one", "s1") + "---" + MAP.replace("one", "s2"), **environment)
    both.writes("get secret parts -o yaml")
    both.writes(line, stdin=MAP.replace("one", "s2"), **environment)
    both.writes("get secret parts cm/s2 -o yaml".replace("secret parts", "secret/parts"))


def test_patch(both: Both) -> None:
    both.given(WEB.replace("name: web", "name: patched") + "---" + MAP.replace("one", "patched"))
    both.writes("""
        patch cm patched -p '{"data":{"c":"3"}}'
        patch cm patched -p '{"data":{"c":"3"}}'
        patch cm/patched --type=merge -p '{"data":{"a":null}}'
        patch cm patched --type=json -p '[{"op":"add","path":"/data/e","value":"f"}]'
        patch cm patched -p 'data: {y: "yaml"}' -o yaml
        patch cm/patched deploy/patched --type=merge -p 'metadata: {labels: {both: x}}' -o yaml
        patch deploy patched -p '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"new"}]}}}}'
        patch deploy patched -p '{"spec":{"replicas":3}}' --dry-run=server -o jsonpath={.spec.replicas}
        patch deploy patched -p '{"spec":{"replicas":3}}' --dry-run=client -o jsonpath={.spec.replicas}
        patch deploy patched --subresource=scale --type=merge -p '{"spec":{"replicas":1}}' -o name
        get deploy patched -o yaml
        ! patch cm patched
        ! patch cm nowhere -p {}
        ! patch cm patched -p {} --type=odd
        ! patch cm patched -p '{'
        ! patch cm patched --type=json -p '[{"op":"remove","path":"/data/nowhere"}]'
        ! patch cm patched --type=json -p '{"op":"remove"}'
        ! patch deploy patched -p '{"spec":{"replicas":-1}}'
        ! patch nothing patched -p {}
    """)
    both.writes("patch --local -f - -p 'data: {z: x}' -o yaml", stdin=MAP)
    both.writes('patch --local -f - --type=json -p \'[{"op":"remove","path":"/data/a"}]\' -o json', stdin=MAP)
    both.writes('patch -f - -p \'{"data":{"f":"g"}}\'', stdin=MAP.replace("one", "patched"))


def test_replace(both: Both) -> None:
    one = MAP.replace("one", "replaced")
    both.given(one)
    both.writes("replace -f -", stdin=one.replace("two", "three"))
    both.writes("get cm replaced -o yaml")
    both.writes("replace -f - -o yaml --save-config", stdin=one)
    both.writes("replace -f - --dry-run=client", stdin=one)
    both.writes("replace -f - --dry-run=server", stdin=one)
    both.writes("! replace -f -", stdin=one.replace("replaced", "nowhere"))
    both.writes("! replace -f -", stdin=one.replace("name: replaced", 'name: replaced, resourceVersion: "1"'))
    both.writes("replace --force -f -", stdin=one)
    both.writes("replace --force -f -", stdin=one.replace("replaced", "replaced-new"))
    both.writes("! replace")
    both.writes("! replace -f - --grace-period=3", stdin=one)
    both.writes("! replace --force --dry-run=client -f -", stdin=one)


def test_label_and_annotate(both: Both) -> None:
    both.given(MAP.replace("one", "l1").replace("web", "l") + "---" + MAP.replace("one", "l2").replace("web", "l"))
    both.writes("""
        label cm l1 --list
        label cm l1 l2 --list
        label cm l1 a=b
        label cm l1 a=b
        ! label cm l1 a=c
        label --overwrite cm l1 a=c
        label cm l1 a- d=e
        label cm l1 nowhere-
        label cm l1 d-
        label cm/l1 cm/l2 x=z
        label cm -l app=l sel=yes
        label cm l1 q=r -o yaml
        label cm l1 l2 p=q -o yaml
        annotate cm l1 l2 p=q -o yaml
        label cm l1 q=s --overwrite --dry-run=client
        label cm l1 q=s --overwrite --dry-run=server -o jsonpath={.metadata.labels}
        ! label cm l1
        ! label a=b
        ! label cm l1 a=b=c
        ! label cm l1 'a=b c'
        ! label cm l1 a=b a-
        ! label cm a=b l1
        ! label cm nowhere a=b
        ! label cm --all -l app=l a=b
        ! label cm l1 l2 a=b --resource-version=1
        ! label cm l1 a=x --overwrite --resource-version=1
        annotate cm l1 note='a b=c'
        ! annotate cm l1 note=x
        annotate cm l1 note=x --overwrite
        annotate cm l1 note-
        annotate cm l1 note-
        annotate cm l1 a=b -o json
        annotate cm -l app=l sel=yes
        annotate cm l1 c=d --dry-run=client -o yaml
        annotate cm l1 c=d --dry-run=server
        ! annotate cm l1
        ! annotate cm l1 a=b a-
        get cm l1 l2 -o yaml
    """)
    both.writes("label --local -f - a=b -o yaml", stdin=MAP)
    both.writes("annotate --local -f - a=b -o yaml", stdin=MAP)
    both.writes("label -f - file=yes", stdin=MAP.replace("one", "l1"))


def test_wait(both: Both) -> None:
    both.given(WEB.replace("name: web", "name: waited") + "---" + MAP.replace("one", "waited"))
    both.writes("""
        wait --for=jsonpath={.data.a}=1 cm/waited
        wait --for=jsonpath={.data.a} cm/waited
        wait --for=create cm/waited
        wait --for=delete cm/nowhere
        ! wait --for=jsonpath={.data.a}=2 cm/waited --timeout=1s
        ! wait --for=condition=Odd deploy/waited --timeout=0
        ! wait --for=delete cm/waited --timeout=1s
        ! wait --for=condition=Ready pod/nowhere
        ! wait --for=odd cm/waited
        ! wait cm/waited
        ! wait --for=jsonpath={.data}=x cm/waited
        ! wait --for=jsonpath={.data.a}=x=y=z cm/waited
        ! wait --for=jsonpath= cm/waited
        ! wait --for=condition=Ready cm -l nothing=here
        wait --for=jsonpath={.metadata.name}=waited cm/waited -o name
        wait --for=jsonpath={.metadata.name}=waited cm/waited -o jsonpath={.data.b}
    """)


def test_diff(both: Both) -> None:
    both.given(MAP.replace("one", "differs") + "---" + WEB.replace("name: web", "name: differs"))
    both.writes("diff -f -", stdin=MAP.replace("one", "differs"))
    both.writes("! diff -f -", stdin=MAP.replace("one", "differs").replace("two", "three"))
    both.writes("! diff -f -", stdin=WEB_CHANGED.replace("name: web", "name: differs"))
    changed = WEB_CHANGED.replace("name: web", "name: differs")
    both.writes("! diff -f - --server-side --field-manager=x --force-conflicts", stdin=changed)
    both.writes("! diff -f -", stdin="{kind: Secret, apiVersion: v1, metadata: {name: new}, data: {a: eA==}}")
    both.writes("! diff -f -", stdin="{kind: Nothing, apiVersion: v1, metadata: {name: new}}")
    both.writes("! diff")
    both.writes("! diff -f - --odd", stdin=MAP)


def test_delete(both: Both) -> None:
    maps = "---".join(MAP.replace("one", f"d{at}").replace("web", "d" if at < 3 else "e") for at in range(8))
    both.given(maps)
    both.writes("""
        delete cm d0 --dry-run=client
        delete cm d0 --dry-run=server
        delete cm d0
        ! delete cm d0
        delete cm d0 --ignore-not-found
        delete cm -l app=d
        delete cm -l app=d
        delete cm/d3 -o name
        delete configmaps d4 --wait=false
        delete cm d5 --force
        ! delete cm d6 d0
        ! delete cm
        ! delete
        ! delete cm --all -l app=d
        ! delete cm d7 --cascade=odd
        ! delete cm d7 --now --grace-period=1
        ! delete cm d7 -o yaml
        ! delete nothing d7
        ! delete cm/d7 svc
        ! delete cm d7/x
        delete cm --field-selector metadata.name=d7
        delete cm,secrets -l nothing=here
    """)
    both.writes("! delete -f -", stdin=MAP.replace("one", "nowhere"))
    both.writes("delete -f - --ignore-not-found", stdin=MAP.replace("one", "nowhere"))
    both.given(MAP.replace("one", "asked"))
    both.writes("delete cm asked -i", stdin="n\n")
    both.writes("delete cm asked -i", stdin="y\n")
    both.given(MAP.replace("one", "raw"))
    both.writes("delete --raw /api/v1/namespaces/{ns}/configmaps/raw")
