"""Templates, columns and tables: kubectl and `setpoint` print the same for the same documents.

Neither a cluster nor a clock is in between: templates are tried on a file, tables come from a server that serves what
it is given.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubectl_environment import kubectl_environment
from printing_cases import BAD_PATHS, BAD_TEMPLATES, OBJECT, PATHS, TEMPLATES, lines
from recorded_server import Recorded, resource, serving

from setpoint.cli.printing import OutputFlags, PrintProblem, as_list, make_get_printer, make_printer
from setpoint.meta.objects import Obj

SEPARATOR = "\n=====\n"
THINGS = "/apis/example.com/v1/namespaces/default/things"
EVERYWHERE = "/apis/example.com/v1/things"

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def kubectl(newest_kubectl: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("home")

    def run(*args: str) -> tuple[int, str]:
        environment = kubectl_environment(home)
        done = subprocess.run([str(newest_kubectl), *args], capture_output=True, timeout=60, env=environment)
        return done.returncode, done.stdout.decode("utf-8", "surrogateescape")

    return run


def ours(printer: Any, *objects: Any) -> tuple[int, str]:
    try:
        return 0, "".join(map(printer().print, [copy.deepcopy(one) for one in objects]))
    except PrintProblem as problem:
        return 1, problem.output


def compared(kubectl: Run, folder: Path, format: str, templates: list[str], missing: str = "true") -> list[str]:
    """Those that come out differently."""
    file = folder / "object.json"
    file.write_text(json.dumps(OBJECT))
    labelled: dict[str, Any] = copy.deepcopy(OBJECT)
    labelled["metadata"]["labels"]["zz"] = "1"

    def one(template: str) -> str:
        flag = f"--allow-missing-template-keys={missing}"
        real = kubectl("label", "--local", "-f", str(file), "zz=1", "-o", f"{format}={template}", flag)
        flags = OutputFlags(f"{format}={template}", allow_missing_template_keys=missing == "true")
        mine = ours(lambda: make_printer(flags), labelled)
        if real == mine:
            return ""
        differing = [
            f"{text!r}: {theirs!r}, not {own!r}"
            for text, theirs, own in zip(
                *(part.split(SEPARATOR) for part in (template, real[1], mine[1])), strict=False
            )
            if theirs != own
        ]
        return "\n".join(differing) or f"{template!r}: {real!r}, not {mine!r}"

    with ThreadPoolExecutor(2) as pool:
        return list(filter(None, pool.map(one, templates)))


def batches(templates: list[str]) -> list[str]:
    """Several at a time, so that few processes are needed."""
    return [SEPARATOR.join(templates[start : start + 15]) for start in range(0, len(templates), 15)]


def test_paths(kubectl: Run, tmp_path: Path) -> None:
    assert compared(kubectl, tmp_path, "jsonpath", batches(lines(PATHS))) == []
    assert compared(kubectl, tmp_path, "jsonpath-as-json", batches(lines(PATHS))[:2]) == []


def test_paths_with_errors(kubectl: Run, tmp_path: Path) -> None:
    assert compared(kubectl, tmp_path, "jsonpath", lines(BAD_PATHS)) == []
    assert compared(kubectl, tmp_path, "jsonpath", ["{.nope}", "{.spec.items[*].b}", "{.spec.nil}"], "false") == []


def test_templates(kubectl: Run, tmp_path: Path) -> None:
    assert compared(kubectl, tmp_path, "go-template", batches(lines(TEMPLATES))) == []


def test_templates_with_errors(kubectl: Run, tmp_path: Path) -> None:
    assert compared(kubectl, tmp_path, "go-template", lines(BAD_TEMPLATES)) == []
    missing = ["{{.nope}}", "{{.spec.nope.x}}", "{{if .nope}}x{{end}}", "{{.spec.nil}}"]
    assert compared(kubectl, tmp_path, "template", missing, "false") == []


def test_documents(kubectl: Run, tmp_path: Path) -> None:
    file = tmp_path / "object.json"
    file.write_text(json.dumps(OBJECT))
    labelled: dict[str, Any] = copy.deepcopy(OBJECT)
    labelled["metadata"]["labels"]["zz"] = "1"
    for format in ("json", "yaml", "name", "YAML"):
        real = kubectl("label", "--local", "-f", str(file), "zz=1", "-o", format)
        assert ours(lambda format=format: make_printer(OutputFlags(format)), labelled) == real


# -- from a server ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    known = Recorded({"v1": [], "example.com/v1": [resource("things", "Thing")]})
    objects: list[dict[str, Any]] = []
    rows: list[Obj] = []
    for at in range(40):
        labels = {"app": f"app-{at % 3}", "example.com/tier": "x" * (at % 5)} if at % 4 else {}
        spec = {
            "size": f"{at % 7}{('', 'm', 'Ki', 'Gi')[at % 4]}",
            "n": at % 5,
            "at": f"2024-01-{at % 9 + 1:02}T00:00:00Z",
        }
        if at % 6 == 5:
            del spec["size"]
        meta = {"name": f"thing-{at * 7 % 40}", "namespace": "default", "labels": labels}
        objects.append({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, "spec": spec})
        status = ("Running", "Pending", "multi\nline", "esc\x1b[31m", "", "tab\tin", "ünïcode")[at % 7]
        cells = [meta["name"], status, at % 3, at / 4, bool(at % 2), None if at % 5 else "x", "w" * (at % 11)]
        rows.append({"cells": cells, "object": {**objects[-1]}})
    columns = [
        {"name": "Name", "type": "string", "format": "name", "priority": 0},
        {"name": "Status", "type": "string", "priority": 0},
        {"name": "Restarts", "type": "integer", "priority": 0},
        {"name": "Share", "type": "number", "priority": 0},
        {"name": "Ok", "type": "boolean", "priority": 0},
        {"name": "Sometimes", "type": "string", "priority": 0},
        {"name": "Far Away", "type": "string", "priority": 1},
    ]
    table = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "columnDefinitions": columns,
        "rows": rows,
    }
    things = {
        "kind": "ThingList",
        "apiVersion": "example.com/v1",
        "metadata": {"resourceVersion": "7"},
        "items": objects,
    }
    for path in (THINGS, EVERYWHERE):
        known.tables[path], known.objects[path] = table, things
    with serving(known, tmp_path_factory.mktemp("recorded")) as running:
        yield running


TABLES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"output": "wide"}, ["-o", "wide"]),
    ({"no_headers": True}, ["--no-headers"]),
    ({"show_labels": True}, ["--show-labels"]),
    ({"show_kind": True}, ["--show-kind"]),
    ({"label_columns": ("app", "example.com/tier")}, ["-L", "app", "-L", "example.com/tier"]),
    ({"label_columns": ("app",), "show_labels": True, "output": "wide"}, ["-Lapp", "--show-labels", "-o", "wide"]),
    ({"sort_by": ".metadata.name"}, ["--sort-by=.metadata.name"]),
    ({"sort_by": "{.spec.n}"}, ["--sort-by={.spec.n}"]),
    ({"sort_by": "spec.size"}, ["--sort-by=spec.size"]),
    ({"sort_by": ".spec.at"}, ["--sort-by=.spec.at"]),
    ({"sort_by": ".metadata.labels.app", "no_headers": True}, ["--sort-by=.metadata.labels.app", "--no-headers"]),
    ({"sort_by": ".nope"}, ["--sort-by=.nope"]),
]
_LIST_FORMS: list[tuple[str, Obj, list[str]]] = [
    ("json", {}, []),
    ("yaml", {}, []),
    ("name", {}, []),
    ("name", {"sort_by": ".spec.n"}, ["--sort-by=.spec.n"]),
    ("json", {"sort_by": ".spec.size"}, ["--sort-by=.spec.size"]),
    ("custom-columns=NAME:.metadata.name,SIZE:.spec.size", {}, []),
    ("custom-columns=NAME:metadata.name,LABELS:{.metadata.labels},N:{spec.n}", {}, []),
    ("custom-columns=NAME:.metadata.name", {"no_headers": True}, ["--no-headers"]),
    ("custom-columns=A:.metadata.nope,B:.spec.*", {"sort_by": ".nope"}, ["--sort-by=.nope"]),
    ("custom-columns=A:.metadata.name[0]", {}, []),
    ("custom-columns=A:.a[", {}, []),
    ("custom-columns=A", {}, []),
    ("jsonpath={range .items[*]}{.metadata.name}{'\\t'}{.spec}{'\\n'}{end}", {}, []),
    ("go-template={{range .items}}{{.metadata.name}}{{end}} {{.kind}} {{.metadata}}", {}, []),
    ("foo", {}, []),
]
LISTS: list[tuple[Obj, list[str]]] = [
    ({"output": output, **more}, ["-o", output, *args]) for output, more, args in _LIST_FORMS
]


def test_tables(kubectl: Run, recorded: Recorded) -> None:
    config = ["--kubeconfig", str(recorded.kubeconfig), "get", "things"]

    def shown(flags: dict[str, Any], document: dict[str, Any], **options: Any) -> tuple[int, str]:
        try:
            printer = make_get_printer(OutputFlags(**flags), lambda: datetime.now(UTC), **options)
            return 0, printer.print(copy.deepcopy(document)) + printer.flush()
        except PrintProblem as problem:
            return 1, problem.output

    def one(case: tuple[dict[str, Any], list[str]]) -> str:
        flags, args = case
        real = kubectl(*config, *args)
        document = recorded.tables[THINGS]
        if flags.get("output") not in (None, "wide"):
            document = as_list(recorded.objects[THINGS]["items"])
        mine = shown(flags, document, kind="Thing", group="example.com")
        if flags.get("sort_by") == ".nope":  # an exit code of its own
            return "" if mine[0] and mine[1] == real[1] else f"{args}: {real}, not {mine}"
        return "" if real == mine else f"{args}:\n{real[1]}\nnot\n{mine[1]}"

    with ThreadPoolExecutor(2) as pool:
        assert list(filter(None, pool.map(one, TABLES + LISTS))) == []
    real = kubectl(*config, "-A", "--show-kind")
    assert (
        shown({"show_kind": True}, recorded.tables[EVERYWHERE], kind="Thing", group="example.com", with_namespace=True)
        == real
    )
