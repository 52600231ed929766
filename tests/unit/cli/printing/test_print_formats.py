"""The printer of each `-o` format, and its documents."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from setpoint.cli.printing import (
    DRY_RUN,
    OutputFlags,
    PrintProblem,
    WatchEvent,
    as_list,
    make_get_printer,
    make_printer,
)

POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "web", "managedFields": [{"manager": "kubectl"}], "annotations": {"note": "a<b & c>d\u2028"}},
    "spec": {"weight": 1.0, "share": 0.000001, "count": 3, "nothing": None, "none": [], "empty": {}},
}
DEPLOYMENT = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web"}}


def shown(flags: OutputFlags, *objects: Any) -> str:
    printer = make_get_printer(flags, lambda: datetime(2026, 1, 1, tzinfo=UTC))
    return "".join(map(printer.print, objects)) + printer.flush()


def acted(flags: OutputFlags, *objects: Any, operation: str = "created") -> str:
    printer = make_printer(flags, operation)
    return "".join(map(printer.print, objects)) + printer.flush()


JSON = """{
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "annotations": {
            "note": "a\\u003cb \\u0026 c\\u003ed\\u2028"
        },
        "name": "web"
    },
    "spec": {
        "count": 3,
        "empty": {},
        "none": [],
        "nothing": null,
        "share": 0.000001,
        "weight": 1
    }
}
"""


def test_json_is_formatted_as_go_does() -> None:
    assert shown(OutputFlags("json"), POD) == acted(OutputFlags("JSON"), POD) == JSON


def test_yaml_documents_are_separated() -> None:
    first = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n"
    assert acted(OutputFlags("yaml"), DEPLOYMENT) == first
    assert acted(OutputFlags("yaml"), DEPLOYMENT, DEPLOYMENT) == f"{first}---\n{first}"


def test_managed_fields_are_shown_on_request_and_objects_are_not_modified() -> None:
    assert "managedFields" not in shown(OutputFlags("yaml"), as_list([POD]))
    assert "managedFields" in shown(OutputFlags("yaml", show_managed_fields=True), as_list([POD]))
    assert POD["metadata"]["managedFields"]


def test_several_objects_are_printed_as_one_list() -> None:
    assert shown(OutputFlags("json"), as_list([DEPLOYMENT])) == (
        '{\n    "apiVersion": "v1",\n    "items": [\n        {\n            "apiVersion": "apps/v1",\n'
        '            "kind": "Deployment",\n            "metadata": {\n                "name": "web"\n            }\n'
        '        }\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n'
    )


def test_names_and_operations() -> None:
    assert shown(OutputFlags("name"), as_list([POD, DEPLOYMENT])) == "pod/web\ndeployment.apps/web\n"
    assert acted(OutputFlags(), DEPLOYMENT, operation="scaled") == "deployment.apps/web scaled\n"
    assert acted(OutputFlags("name"), POD) == "pod/web\n"
    assert acted(OutputFlags(), POD, operation=DRY_RUN["server"] % "created") == "pod/web created (server dry run)\n"
    assert acted(OutputFlags(), POD, operation=DRY_RUN["client"] % "created") == "pod/web created (dry run)\n"
    assert acted(OutputFlags(), {"kind": "Pod", "apiVersion": "v1"}) == "pod/<unknown> created\n"


def test_an_object_without_kind_cannot_be_named() -> None:
    for output in ("name", "json", "yaml"):
        with pytest.raises(PrintProblem, match="missing apiVersion or kind"):
            acted(OutputFlags(output), {"metadata": {"name": "web"}})


def test_watch_events_as_documents() -> None:
    event = WatchEvent("ADDED", DEPLOYMENT)
    bare = '{"type":"ADDED","object":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}}\n'
    assert shown(OutputFlags("json"), event) == bare
    assert shown(OutputFlags("yaml"), event) == (
        "object:\n  apiVersion: apps/v1\n  kind: Deployment\n  metadata:\n    name: web\ntype: ADDED\n"
    )
    assert shown(OutputFlags("jsonpath={.type}: {.object.metadata.name}"), event) == "ADDED: web"
    assert shown(OutputFlags("name"), event) == "deployment.apps/web\n"


def test_custom_columns() -> None:
    spec = "custom-columns=NAME:.metadata.name,COUNT:{.spec.count},NONE:spec.nope,ALL:.spec['count','weight']"
    assert shown(
        OutputFlags("custom-columns=NAME:.metadata.name,COUNT:{.spec.count},NONE:spec.nope"), as_list([POD])
    ) == ("NAME   COUNT   NONE\nweb    3       <none>\n")
    assert shown(OutputFlags("custom-columns=A:.metadata.name", no_headers=True), POD) == "web\n"
    assert shown(OutputFlags("custom-columns", template="A:.metadata"), DEPLOYMENT) == "A\nmap[name:web]\n"
    assert shown(OutputFlags("custom-columns=A:.spec.*"), {"spec": {"a": "x\x1b[1m", "b": None}}) == "A\nx^[[1m,<nil>\n"
    with pytest.raises(PrintProblem) as caught:  # a comma ends a column, even within brackets
        shown(OutputFlags(spec), POD)
    assert str(caught.value) == "unexpected custom-columns spec: 'weight'], expected <header>:<json-path-expr>"


def test_custom_columns_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "columns"
    file.write_text("NAME COUNT\nmetadata.name {.spec.count}\n")
    assert shown(OutputFlags(f"custom-columns-file={file}"), POD) == "NAME   COUNT\nweb    3\n"
    file.write_text("NAME COUNT\nmetadata.name")
    with pytest.raises(PrintProblem, match=r"number of headers \(2\) and field specifications \(1\) don't match"):
        shown(OutputFlags(f"custom-columns-file={file}"), POD)
    file.write_text("NAME COUNT")
    with pytest.raises(PrintProblem, match="missing spec line"):
        shown(OutputFlags(f"custom-columns-file={file}"), POD)


def test_jsonpath_printers(tmp_path: Path) -> None:
    file = tmp_path / "path"
    file.write_text("{.metadata.name}\n")
    assert shown(OutputFlags(f"jsonpath-file={file}"), POD) == "web\n"
    assert shown(OutputFlags("jsonpath", template="{.kind}"), POD) == "Pod"
    assert acted(OutputFlags("jsonpath-as-json={.kind}"), POD) == '[\n    "Pod"\n]\n'
    assert acted(OutputFlags("jsonpath={.nope}"), POD) == ""


def test_go_template_printers(tmp_path: Path) -> None:
    file = tmp_path / "template"
    file.write_text("{{.metadata.name}}\n")
    for format in ("go-template-file", "templatefile"):
        assert shown(OutputFlags(f"{format}={file}"), POD) == "web\n"
    assert shown(OutputFlags(template="{{.kind}}"), POD) == acted(OutputFlags("template={{.kind}}"), POD) == "Pod"
    with pytest.raises(PrintProblem) as caught:
        shown(OutputFlags("go-template={{.a"), POD)
    assert str(caught.value) == "error parsing template {{.a, template: output:1: unclosed action"


def test_lists_are_decoded_again_before_printing() -> None:
    """So a float that is an integer is printed as one in a list, and as a float by itself."""
    large = {"kind": "A", "apiVersion": "v1", "spec": {"n": 1e7}}
    assert shown(OutputFlags("custom-columns=N:.spec.n", no_headers=True), as_list([large])) == "10000000\n"
    assert shown(OutputFlags("custom-columns=N:.spec.n", no_headers=True), large) == "1e+07\n"


def test_a_failed_path_is_shown_with_its_data() -> None:
    with pytest.raises(PrintProblem) as caught:
        acted(OutputFlags("jsonpath={.nope}", allow_missing_template_keys=False), DEPLOYMENT)
    assert str(caught.value) == (
        'error executing jsonpath "{.nope}": Error executing template: nope is not found. '
        "Printing more information for debugging the template:\n"
        "\ttemplate was:\n\t\t{.nope}\n"
        "\tobject given to jsonpath engine was:\n"
        '\t\tmap[string]interface {}{"apiVersion":"apps/v1", "kind":"Deployment", '
        '"metadata":map[string]interface {}{"name":"web"}}\n\n'
    )


ALLOWED = "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (
            OutputFlags("foo"),
            'unable to match a printer suitable for the output format "foo", allowed formats are: '
            f"custom-columns,custom-columns-file,{ALLOWED},wide,yaml",
        ),
        (OutputFlags("jsonpath"), "template format specified but no template given"),
        (OutputFlags("jsonpath="), "template format specified but no template given"),
        (OutputFlags("go-template="), "template format specified but no template given"),
        (OutputFlags("custom-columns"), "custom-columns format specified but no custom columns given"),
        (OutputFlags("custom-columns=a"), "unexpected custom-columns spec: a, expected <header>:<json-path-expr>"),
        (OutputFlags("jsonpath={.a"), "error parsing jsonpath {.a, unclosed action"),
        (OutputFlags("jsonpath-file=/nope"), "error reading --template /nope, open /nope: no such file or directory"),
        (
            OutputFlags("custom-columns-file=/nope"),
            "error reading template /nope, open /nope: no such file or directory",
        ),
        (
            OutputFlags("jsonpath={.a}", template="{.b}"),
            'unable to match a printer suitable for the output format "jsonpath={.a}", allowed formats are: '
            f"custom-columns,custom-columns-file,{ALLOWED},wide,yaml",
        ),
    ],
)
def test_unsupported_formats_are_rejected_before_any_request(flags: OutputFlags, complaint: str) -> None:
    with pytest.raises(PrintProblem) as caught:
        shown(flags)
    assert str(caught.value) == complaint


def test_verbs_that_write_have_no_table_formats() -> None:
    with pytest.raises(PrintProblem) as caught:
        acted(OutputFlags("wide"))
    assert str(caught.value) == (
        f'unable to match a printer suitable for the output format "wide", allowed formats are: {ALLOWED},yaml'
    )


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (OutputFlags("json", show_labels=True), "--show-labels option cannot be used with json printer"),
        (
            OutputFlags("custom-columns=a:b", label_columns=("x",)),
            "--label-columns option cannot be used with custom-columns=a:b printer",
        ),
    ],
)
def test_conflicting_output_flags_are_rejected(flags: OutputFlags, complaint: str) -> None:
    with pytest.raises(PrintProblem) as caught:
        flags.check()
    assert str(caught.value) == complaint
    OutputFlags("wide", show_labels=True, label_columns=("x",)).check()


def test_formats_that_request_tables_from_the_server() -> None:
    assert OutputFlags().for_people and OutputFlags("wide").for_people
    assert not OutputFlags("json").for_people and not OutputFlags(template="{{.}}").for_people


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        (
            "jsonpath={.kind} {.metadata.nmae}",
            "  the path fails at .metadata.nmae; there are: name (did you mean name?)",
        ),
        ("jsonpath={.items[0].x}", "  the path fails at .items; there are: apiVersion, kind, metadata"),
        ("jsonpath={.kind[?(@.a==1)].b}", "  the path fails at .kind[?(@.a==1)]"),
        ("jsonpath={.metadata['name'][1:2]}", "  the path fails at .metadata.name[1:2]"),
        ("jsonpath={.kind} {.metadata[a]}", "  {.kind} {.metadata[a]}\n                      ^"),
        ("custom-columns=A:.kind,B:.metadata[0]", "  the path fails at .metadata[0]"),
        ("custom-columns=A:.kind,B:.metadata[", "  {.metadata[}\n             ^"),
    ],
)
def test_the_failed_part_of_a_path_is_shown(output: str, hint: str) -> None:
    with pytest.raises(PrintProblem) as caught:
        shown(OutputFlags(output, allow_missing_template_keys=False), DEPLOYMENT)
    assert caught.value.hint == hint


KYAML = """---
{
  apiVersion: "example.com/v1",
  kind: "Sample",
  metadata: {
    labels: {
      "1.5": "a",
      app.kubernetes.io/name: "web",
      "no": "yes",
      "t": "",
    },
    name: "web",
  },
  some: {
    lines: "\\
       first\\n\\
      \\  indented \\"quoted\\"\\n\\
       \\n\\
       last\\
      ",
    list: [
      1,
      "b",
    ],
    maps: [{
      a: 1,
    }, {
      b: [],
    }],
    none: {},
    number: 1.5,
    "with space": null,
  },
}
"""


def test_kyaml() -> None:
    """Recorded from kubectl 1.37."""
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Sample",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web", "no": "yes", "1.5": "a", "t": ""}},
        "some": {
            "lines": 'first\n  indented "quoted"\n\nlast',
            "list": [1, "b"],
            "maps": [{"a": 1}, {"b": []}],
            "none": {},
            "number": 1.5,
            "with space": None,
        },
    }
    assert shown(OutputFlags("kyaml"), obj) == KYAML
