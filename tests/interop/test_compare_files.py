"""Files, directories and editors: the same results by kubectl and by `setpoint`."""

from __future__ import annotations

import stat

import pytest
from comparing import Both

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, labels: {app: files}}\ndata: {a: before}\n"
FILES = {
    "dir/b.yaml": MAP.replace("NAME", "b"),
    "dir/a.yml": MAP.replace("NAME", "a1") + "---\n" + MAP.replace("NAME", "a2"),
    "dir/c.json": '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}',
    "dir/ignored.txt": "not yaml: [",
    "dir/deeper/d.yaml": MAP.replace("NAME", "d"),
    "empty/readme.txt": "",
    "comments.yaml": "# nothing\n---\n# but comments\n",
    "list.yaml": "apiVersion: v1\nkind: List\nitems:\n- " + MAP.replace("NAME", "l1").replace("\n", "\n  ").rstrip(),
    "bad.yaml": MAP.replace("NAME", "good") + "---\nkind: [\n",
    "bytes.yaml": MAP.replace("NAME", "bytes").replace("before", '"\\x01\\u00e9\\U0001F600"'),
    "no-kind.yaml": "apiVersion: v1\nmetadata: {name: x}\n",
    "scalar.yaml": "just text\n",
    "generate.yaml": MAP.replace("name: NAME", "generateName: made-"),
    "secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n",
}
EDITOR = '#!/bin/sh\nsed -i s/before/after/ "$1"\n'


@pytest.fixture(scope="module")
def laid_out(both: Both) -> Both:
    for name, text in FILES.items():
        path = both.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, text in (("editor", EDITOR), ("nothing", "#!/bin/sh\n")):
        path = both.home / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    both.smooth.append((r" from NAMESPACE namespace", ""))
    both.smooth.append((r"made-\w{5}", "made-XXXXX"))
    return both


def test_directories(laid_out: Both) -> None:
    laid_out.writes("""
        create -f dir --dry-run=server
        create -f dir -R --dry-run=client -o name
        apply -f dir
        apply -R -f dir
        apply -f dir/a.yml -f dir/b.yaml
        apply -f dir/a.yml,dir/b.yaml
        apply -f 'dir/*.yml'
        get -f dir -o name
        label -f dir more=x
        delete -f dir -R
        ! create -f empty
        ! create -f nowhere
        ! create -f 'nowhere/*.yaml'
    """)


def test_unusual_files(laid_out: Both) -> None:
    laid_out.writes("""
        ! create -f comments.yaml
        create -f list.yaml
        ! create -f bad.yaml
        get cm good -o name
        create -f bytes.yaml -o json
        ! create -f no-kind.yaml
        ! create -f no-kind.yaml --validate=false
        ! apply -f scalar.yaml
        create -f generate.yaml
        create -f secret.yaml
        ! create -f list.yaml -f secret.yaml
        ! apply -f list.yaml -k dir
        delete -f list.yaml --ignore-not-found
    """)


def test_editors(laid_out: Both) -> None:
    laid_out.given(MAP.replace("NAME", "edited") + "---\n" + MAP.replace("NAME", "edited-too"))
    editor = {"KUBE_EDITOR": str(laid_out.home / "editor")}
    laid_out.writes("edit cm edited --output-patch", **editor)
    laid_out.writes("get cm edited -o yaml --show-managed-fields")
    laid_out.writes("edit cm edited", **editor)
    laid_out.writes("edit cm edited edited-too -o yaml", **editor)
    laid_out.writes("edit cm edited", KUBE_EDITOR=str(laid_out.home / "nothing"))
    laid_out.writes("! edit cm nowhere", **editor)
    laid_out.writes("! edit cm edited", KUBE_EDITOR="nowhere-to-be-found")
    laid_out.writes("! edit cm edited", KUBE_EDITOR="false")
    laid_out.writes("create --edit -f -", stdin=MAP.replace("NAME", "new"), **editor)
    laid_out.writes("get cm new -o jsonpath={.data.a}")
    laid_out.writes("apply edit-last-applied cm/edited-too", **editor)
    laid_out.writes("apply view-last-applied cm/edited-too")
