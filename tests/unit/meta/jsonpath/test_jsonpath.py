"""kubectl's JSONPath: results of templates, and errors of invalid ones."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta import jsonpath
from setpoint.meta.jsonpath import JsonPath, JsonPathError, relaxed

POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web", "a-b": "c"}},
    "spec": {
        "containers": [
            {"name": "one", "image": "nginx", "ports": [{"port": 80}, {"port": 443}]},
            {"name": "two", "image": "redis", "ports": []},
            {"name": "three", "image": "<none>", "ready": True, "weight": 1.5, "last": None},
        ],
        "numbers": [0, 1, 2, 3, 4, 5],
        "large": 1e6,
        "beyond": 12345678901234567890,
    },
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ("{.kind}", "Pod"),
        ("{ .kind }", "Pod"),
        ("{$.kind}-{@.kind}", "Pod-Pod"),
        (r"{.metadata.labels.app\.kubernetes\.io/name}", "web"),
        ("{.metadata.labels.a-b}", "c"),
        ("{['metadata']['name']}", "web"),
        ("{['metadata.name']}", "web"),
        ("{.metadata}", '{"labels":{"a-b":"c","app.kubernetes.io/name":"web"},"name":"web"}'),
        ("{.spec.containers[*].name}", "one two three"),
        ("{.spec.containers[0].name}", "one"),
        ("{.spec.containers[-1].image}", "<none>"),
        ("{.spec.containers[-1]['image','weight']}", "<none> 1.5"),
        (
            "{.spec.containers[2]}",
            '{"image":"\\u003cnone\\u003e","last":null,"name":"three","ready":true,"weight":1.5}',
        ),
        ("{.spec.containers[2].last}", "null"),
        ("{.spec.containers[2].ready}", "true"),
        ("{.spec.large}", "1e+06"),
        ("{.spec.beyond}", "1.2345678901234567e+19"),
        ("{.spec.numbers[1:3]}", "1 2"),
        ("{.spec.numbers[:2]}", "0 1"),
        ("{.spec.numbers[-2:]}", "4 5"),
        ("{.spec.numbers[::2]}", "0 2 4"),
        ("{.spec.numbers[1:-1:3]}", "1 4"),
        ("{.spec.numbers[2:2]}", ""),
        ("{.spec.numbers[]}", "0"),
        ("{.spec.numbers[0,2,-1]}", "0 2 5"),
        ("{.spec.numbers[?(@>3)]}", "4 5"),
        ("{.spec.numbers[?(@<=1)]}", "0 1"),
        ("{.spec.numbers[?(@!=0)]}", "1 2 3 4 5"),
        ('{.spec.containers[?(@.name=="two")].image}', "redis"),
        ("{.spec.containers[?(@.name == 'two')].image}", "redis"),
        ('{.spec.containers[?(@.name >= "three")].name}', "two three"),
        ("{.spec.containers[?(@.ready)].name}", "three"),
        ("{.spec.containers[?(@.ports[0])].name}", "one two"),  # an index that is out of bounds counts as found
        ("{..port}", "80 443"),
        ("{..ports[*].port}", "80 443"),
        ("{.metadata.labels.*}", "c web"),
        ("{.metadata.name.*}", "119 101 98"),
        ('{range .spec.containers[*]}{.name}{"\\t"}{.image}{"\\n"}{end}', "one\tnginx\ntwo\tredis\nthree\t<none>\n"),
        ("{range .spec.containers[*]}[{range .ports[*]}{.port},{end}]{end}!", "[80,443,][][]!"),
        ("{range .spec.numbers[:2]}{@} {.}{end}", "0 1 "),
        ("{range .nothing[*]}{.a}{range .b[*]}{.c}{end}{end}after", "after"),
        ("{range .spec.numbers[:2]}x", "xxx"),  # without an end, what follows is also done once more
        ('{"{"}{\'"\'}', '{"'),
        ('{"\\x41\\u00e9\\101\\\\ "}', "Aé" + "A\\ "),
        ("{1} {-2.50} {true} {007}", "1 -2.5 true 7"),
    ],
)
def test_templates_are_rendered(template: str, expected: str) -> None:
    assert JsonPath.parse(template, allow_missing_keys=True).render(POD) == expected


def test_an_empty_list_ends_the_evaluation_of_a_step() -> None:
    """As upstream, evaluation stops: the ports of the third container are not evaluated."""
    data = [{"ports": [1]}, {"ports": []}, {"ports": [2]}]
    assert JsonPath.parse("{[*].ports[*]}").find(data) == [1]


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{.kind", "unclosed action"),
        ("{.kind\n}", "unclosed action"),
        ("{*}", "unrecognized character in action: U+002A '*'"),
        ("{\t}", "unrecognized character in action: U+0009"),
        ("{+12.3.0}", "cannot parse number +12.3.0"),
        ("{[1}", "unterminated array"),
        ("{[a]}", "invalid array index a"),
        ("{[-]}", "array index - is not a number"),
        ("{[?(.price]}", "unterminated filter"),
        ("{[?(.price)}", "unclosed array expect ]"),
        ("{........}", "invalid multiple recursive descent"),
        ('{"abc}', "unterminated quoted string"),
        ('{"\\q"}', 'unquote string "\\q" error invalid syntax'),
    ],
)
def test_parse_errors(template: str, complaint: str) -> None:
    with pytest.raises(JsonPathError) as caught:
        JsonPath.parse(template)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{.metadataa}", "metadataa is not found"),
        ("{.}", " is not found"),
        ("{hello}", "unrecognized identifier hello"),
        ("{end}", "not in range, nothing to end"),
        ("{.metadata[0]}", "map[string]interface {} is not array or slice"),
        ("{.spec.beyond[0]}", "float64 is not array or slice"),
        ("{.spec.numbers[9]}", "array index out of bounds: index 9, length 6"),
        ("{.spec.numbers[1:9]}", "array index out of bounds: index 8, length 6"),
        ("{.spec.numbers[3:1]}", "starting index 3 is greater than ending index 1"),
        ("{.spec.numbers[0:3:0]}", "step must be > 0"),
        ("{.kind[?(@.a)]}", "Pod is not array or slice and cannot be filtered"),
        ("{.spec.numbers[?(@<>1)]}", "unrecognized filter operator <>"),
        ('{.spec.numbers[?(@=="1")]}', "incompatible types for comparison"),
        ("{.spec.containers[?(@.name<true)]}", "incompatible types for comparison"),
        (
            "{.spec.containers[2:][?(@.ready<true)]}",
            "map[image:<none> last:<nil> name:three ready:true weight:1.5]"
            " is not array or slice and cannot be filtered",
        ),
        ("{.spec.containers[?(@.ports==1)]}", "invalid type for comparison"),
        ("{.spec.containers[?(@.ports[*].port==80)]}", "can only compare one element at a time"),
        ("{.spec.containers[?(@.ready==true)].name}", "ready is not found"),
    ],
)
def test_evaluation_errors(template: str, complaint: str) -> None:
    with pytest.raises(JsonPathError) as caught:
        JsonPath.parse(template).render(POD)
    assert str(caught.value) == complaint


def test_invalid_utf8_is_preserved() -> None:
    assert JsonPath.parse('{"\\xff"}').render({}).encode("utf-8", "surrogateescape") == b"\xff"


def test_results_as_json() -> None:
    path = JsonPath.parse("{.metadata.name}{.spec.containers[*].name}")
    assert path.render_json(POD) == '[\n    "web"\n]\n[\n    "one",\n    "two",\n    "three"\n]\n'


@pytest.mark.parametrize("text", ["metadata.name", ".metadata.name", "{metadata.name}", "{.metadata.name}"])
def test_a_single_path_may_lack_dot_and_braces(text: str) -> None:
    assert relaxed(text) == "{.metadata.name}"
    assert JsonPath.parse_relaxed(text).find(POD) == ["web"]


@pytest.mark.parametrize("text", ["{.a}{.b}", "{{.a}}", "{}", "a}"])
def test_more_than_a_single_path_is_refused(text: str) -> None:
    with pytest.raises(JsonPathError, match="unexpected path string, expected a 'name1"):
        relaxed(text)


def test_groups_of_results_by_action() -> None:
    path = JsonPath.parse("{.kind}: {.nothing}{.spec.numbers[:2]}", allow_missing_keys=True)
    assert path.groups(POD) == [["Pod"], [": "], [], [0, 1]]


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonpath, "MAX_VALUES", 1000)
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    assert len(JsonPath.parse("{..}").find(deep)) == 200
    with pytest.raises(JsonPathError, match="more than 1000 values"):
        JsonPath.parse("{..[*]..[*]..}").find(deep)
    with pytest.raises(JsonPathError, match="nested more than"):
        JsonPath.parse("{range @}" * 100).find({"a": 1})


@given(st.text(alphabet="{}[]().*@$?'\"\\:,=<> range-end1ab", max_size=40))
def test_any_text_is_parsed_or_rejected_without_side_effects(text: str) -> None:
    data = copy.deepcopy(POD)
    try:
        path = JsonPath.parse(text, allow_missing_keys=True)
        assert path.render(data) == path.render(data)
    except JsonPathError:
        pass
    assert data == POD


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_descent_finds_every_container_once(data: object) -> None:
    def containers(value: object) -> int:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        return bool(inner) + sum(map(containers, inner))

    found = JsonPath.parse("{..}").find(data)
    assert sum(isinstance(value, dict | list) for value in found) == containers(data)
