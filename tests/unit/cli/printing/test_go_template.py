"""Go's templates: their output, and the errors of invalid ones."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.cli.printing import OutputFlags, PrintProblem, make_printer
from setpoint.cli.printing.go_template import GoTemplate, TemplateProblem, evaluation
from setpoint.cli.printing.go_template.formatting import sprintf

POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}},
    "spec": {"containers": [{"name": "one", "ports": [80, 443]}, {"name": "two"}], "count": 3, "nothing": None},
    "data": {"key": "c2VjcmV0", "bytes": "/w=="},
}


def rendered(template: str, **options: bool) -> str:
    return GoTemplate.parse(template, **options).render(POD)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain }} text", "plain }} text"),
        ("{{.metadata.name}}", "web"),
        ("{{.metadata.nope}} {{.nope.deeper}} {{.spec.nothing}}", "<no value> <no value> <no value>"),
        ("{{.metadata.labels}}", "map[app:web tier:front]"),
        ("{{range .spec.containers}}{{.name}},{{end}}", "one,two,"),
        ("{{range $i, $c := .spec.containers}}{{$i}}={{$c.name}} {{end}}", "0=one 1=two "),
        ("{{range $k, $v := .metadata.labels}}{{$k}}={{$v}};{{end}}", "app=web;tier=front;"),
        ("{{range .nope}}x{{else}}none{{end}}", "none"),
        ("{{range 3}}{{.}}{{end}}", "012"),
        ('{{range .spec.containers}}{{if eq .name "two"}}{{break}}{{end}}{{.name}}{{end}}', "one"),
        ('{{range .spec.containers}}{{if eq .name "one"}}{{continue}}{{end}}{{.name}}{{end}}', "two"),
        ("{{if .nope}}a{{else if .kind}}b{{else}}c{{end}}", "b"),
        ("{{with .nope}}a{{else with .kind}}{{.}}{{end}}", "Pod"),
        ("{{$x := 1}}{{if true}}{{$x = 2}}{{$y := 3}}{{$y}}{{end}}{{$x}}", "32"),
        ('{{define "t"}}<{{.}}>{{end}}{{template "t" .kind}}{{template "t"}}', "<Pod><<no value>>"),
        ('{{block "b" .metadata}}{{.name}}{{end}}', "web"),
        ('a  {{- " b " -}}  c{{- /* gone */ -}}  d', "a b cd"),
        ("{{len .spec.containers}} {{len .kind}}", "2 3"),
        ('{{index .metadata.labels "app"}} {{index .spec.containers 0 "ports" 1}}', "web 443"),
        ("{{(index .spec.containers 1).name}}", "two"),
        ("{{slice .kind 1}} {{(index .spec.containers 0).ports | len}}", "od 2"),
        ('{{and 1 0}} {{or 0 "x"}} {{not .nope}} {{and .kind .nope}}', "0 x true <no value>"),
        ('{{eq 1 2 1}} {{ne "a" "b"}} {{lt 1 2}} {{ge 2.5 2.5}} {{eq .nope nil}}', "true true true true true"),
        ('{{print 1 2 "x" 3}} {{println "x" 1}}', "1 2x3 x 1\n"),
        (
            '{{printf "%-5s|%03d|%v|%q" .kind .spec.count .metadata.labels "x"}}',
            'Pod  |003|map[app:web tier:front]|"x"',
        ),
        ('{{html "<&>"}} {{js "\'"}} {{urlquery "a b/"}}', "&lt;&amp;&gt; \\' a+b%2F"),
        ("{{.data.key | base64decode}}", "secret"),
        ('{{exists .metadata "name"}} {{exists .spec "nothing"}}', "true false"),
        ("{{0x10}} {{010}} {{1e3}} {{'a'}} {{`r`}} {{\"\\u00e9\"}}", "16 8 1000 97 r é"),
        ('{{"}}"}}{{"{{"}}', "}}{{"),
    ],
)
def test_templates_are_rendered(template: str, expected: str) -> None:
    assert rendered(template) == expected


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{.kind", "output:1: unclosed action"),
        ("{{.a}}\n{{foo .b}}", 'output:2: function "foo" not defined'),
        ("{{$y}}", 'output:1: undefined variable "$y"'),
        ("{{}}", "output:1: missing value for command"),
        ("{{if .a}}x", "output:1: unexpected EOF"),
        ("{{end}}", "output:1: unexpected {{end}}"),
        ("{{break}}", "output:1: {{break}} outside {{range}}"),
        ("{{1 | 2}}", "output:1: non executable command in pipeline stage 2"),
        ('{{"abc}}', "output:1: unterminated quoted string"),
        ("{{1a}}", 'output:1: bad number syntax: "1a"'),
        ("{{.a}}{{/* open", "output:1: unclosed comment"),
        ("{{if .a}}\n{{.b", "output:2: unclosed action"),
        ("{{.b\n\n", "output:3: unclosed action started at output:1"),
        ("{{$a, $b := .x}}", "output:1: too many declarations in command"),
        ("{{@}}", 'output:1: unexpected "@" in command'),
        ('{{define "x"}}a{{end}}{{define "x"}}b{{end}}', 'output:1: template: multiple definition of template "x"'),
    ],
)
def test_templates_with_syntax_errors(template: str, complaint: str) -> None:
    with pytest.raises(TemplateProblem) as caught:
        GoTemplate.parse(template)
    assert str(caught.value) == f"template: {complaint}"


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{.kind.x}}", '1:7: executing "output" at <.kind.x>: can\'t evaluate field x in type interface {}'),
        ("{{with .kind}}{{.x}}{{end}}", '1:16: executing "output" at <.x>: can\'t evaluate field x in type string'),
        (
            "é\n{{.spec.nothing.x}}",
            '2:7: executing "output" at <.spec.nothing.x>: nil pointer evaluating interface {}.x',
        ),
        ("{{range .kind}}{{end}}", '1:8: executing "output" at <.kind>: range can\'t iterate over Pod'),
        ("{{len 3}}", '1:2: executing "output" at <len 3>: error calling len: len of type int'),
        (
            "{{index .spec.containers 9}}",
            '1:2: executing "output" at <index .spec.containers 9>: error calling index: index out of range: 9',
        ),
        ('{{eq 1 "a"}}', '1:2: executing "output" at <eq 1 "a">: error calling eq: incompatible types for comparison'),
        ("{{not 1 2}}", '1:2: executing "output" at <not>: wrong number of args for not: want 1 got 2'),
        ("{{.kind 1}}", '1:2: executing "output" at <.kind>: kind is not a method but has arguments'),
        ('{{"a" 1}}', '1:2: executing "output" at <"a">: can\'t give argument to non-function "a"'),
        ("{{.nope | base64decode}}", '1:10: executing "output" at <base64decode>: invalid value; expected string'),
        (
            '{{base64decode "a$"}}',
            '1:2: executing "output" at <base64decode "a$">: error calling base64decode: '
            "base64 decode failed: illegal base64 data at input byte 1",
        ),
        ('{{template "x"}}', '1:11: executing "output" at <{{template "x"}}>: template "x" not defined'),
        (
            '{{define "x"}}{{.y.z}}{{end}}{{template "x" 1}}',
            '1:18: executing "x" at <.y.z>: can\'t evaluate field y in type int',
        ),
    ],
)
def test_templates_that_fail_on_the_data(template: str, complaint: str) -> None:
    with pytest.raises(TemplateProblem) as caught:
        rendered(template)
    assert str(caught.value) == f"template: output:{complaint}"


def test_missing_keys_may_be_errors() -> None:
    with pytest.raises(TemplateProblem, match='map has no entry for key "nope"'):
        rendered("{{.nope}}", allow_missing_keys=False)


def test_output_before_a_failure_is_printed_with_the_error() -> None:
    pod = {"kind": "Pod", "spec": {"share": 2.0}}
    with pytest.raises(PrintProblem) as caught:
        make_printer(OutputFlags("go-template={{.spec.share}} {{.kind.x}}")).print(pod)
    complaint = 'template: output:1:23: executing "output" at <.kind.x>: can\'t evaluate field x in type interface {}'
    assert str(caught.value) == f'error executing template "{{{{.spec.share}}}} {{{{.kind.x}}}}": {complaint}'
    assert caught.value.output == (
        f"2 Error executing template: {complaint}. Printing more information for debugging the template:\n"
        "\ttemplate was:\n\t\t{{.spec.share}} {{.kind.x}}\n"
        '\traw data was:\n\t\t{"kind":"Pod","spec":{"share":2}}\n'
        "\tobject given to template engine was:\n\t\tmap[kind:Pod spec:map[share:2]]\n\n"
    )


def test_invalid_utf8_is_preserved() -> None:
    assert rendered("{{.data.bytes | base64decode}}").encode("utf-8", "surrogateescape") == b"\xff"


@pytest.mark.parametrize(
    ("format", "args", "expected"),
    [
        ("%d%%", [5], "5%"),
        ("%5.1f|%-8s|%+d", [3.14159, "ab", 3], "  3.1|ab      |+3"),
        ("%x %X %#x %o %b", [255, 255, 255, 8, 5], "ff FF 0xff 10 101"),
        ("%s", [None], "%!s(<nil>)"),
        ("%d", ["a"], "%!d(string=a)"),
        ("%d", [], "%!d(MISSING)"),
        ("x", [1, "a"], "x%!(EXTRA int64=1, string=a)"),
        ("%[2]s %[1]s", ["a", "b"], "b a"),
        ("%[5]s", ["a"], "%!s(BADINDEX)"),
        ("%*d|%-*d|", [4, 1, 4, 1], "   1|1   |"),
        ("%v %+v", [[1, None, "a"], {"b": 1.5}], "[1 <nil> a] map[b:1.5]"),
        ("%#v", [{"a": [None, "x"]}], 'map[string]interface {}{"a":[]interface {}{interface {}(nil), "x"}}'),
        ("%T %T", ["", 1.0], "string float64"),
        ("%q %c %U", [65, 0x1F600, 65], "'A' 😀 U+0041"),
        ("%", [], "%!(NOVERB)"),
        ("%08.3f|%e", [-3.14159, 12345.678], "-003.142|1.234568e+04"),
    ],
)
def test_printf(format: str, args: list[object], expected: str) -> None:
    assert sprintf(format, args) == expected


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_STEPS", 1000)
    with pytest.raises(TemplateProblem, match="more than 1000 steps"):
        rendered("{{range 1000000000}}x{{end}}")
    with pytest.raises(TemplateProblem, match="exceeded maximum template depth"):
        rendered('{{define "r"}}{{template "r"}}{{end}}{{template "r"}}')
    with pytest.raises(TemplateProblem, match="nested too deep"):
        GoTemplate.parse("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}")


@given(st.text(alphabet='{}[]().$|:=, "-abrangeifd1\n', max_size=40))
def test_arbitrary_templates_are_parsed_or_rejected(text: str) -> None:
    data = copy.deepcopy(POD)
    try:
        template = GoTemplate.parse("{{" + text + "}}")
        assert template.render(data) == template.render(data)
    except TemplateProblem as problem:
        assert str(problem).startswith("template: ")
    assert data == POD
