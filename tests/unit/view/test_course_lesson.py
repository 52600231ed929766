"""Lessons: front matter and blocks, questions, courses, progress; and what is wrong in files, with file and line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.view.course.blocks import CheckBlock, Fault, FaultBlock, Reveal, Run, StarterFile, read_fault
from setpoint.view.course.course import MAX_LESSONS, new_lesson, read_course
from setpoint.view.course.lesson import MAX_LESSON_BYTES, Lesson, read_lesson
from setpoint.view.course.problems import InvalidLesson
from setpoint.view.course.progress import Progress

HEAD = '---\ntitle: "A lesson"\nminutes: 5\n---\n'


def lesson(body: str, head: str = HEAD) -> Lesson:
    return read_lesson("mine", "mine.md", (head + body).encode())


def problems(body: str, head: str = HEAD) -> list[str]:
    with pytest.raises(InvalidLesson) as raised:
        lesson(body, head)
    return str(raised.value).split("\n")


def test_a_lesson() -> None:
    found = lesson(
        "Intro\n\n:::run\n# first\nkubectl get pods\nkubectl apply -f - <<EOF\nkind: Pod\nEOF\n:::\n\n"
        ":::run fails\nkubectl create x\n:::\n"
        ":::file web.yaml\nkind: Pod\n:::\n:::reveal Why?\nBecause.\n:::\n:::fault\nnode stop node-2\ncontrollers start\n:::\n"
        ":::operator postgres\n:::\n:::show\nchain deployment/web\n:::\n:::hint\nTry.\n:::\n"
        ":::break\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n:::\n"
        ":::solution\n@run\n@fault\nkubectl get x \\\n  -o yaml\n@operator start\n@sleep 5\n:::\n",
        "---\ntitle: T\nsummary: S\nafter: []\nstart: {nodes: 2, pace: fast}\nshow: fleet\n---\n",
    )
    kinds = [type(each).__name__ for each in found.parts]
    assert kinds == [
        *("Text", "Run", "Run", "StarterFile", "Reveal", "FaultBlock", "OperatorBlock", "Show", "Hint"),
    ]
    run, refused = found.runs
    assert run.commands == ("kubectl get pods", "kubectl apply -f - <<EOF\nkind: Pod\nEOF")
    assert (run.fails, refused.fails) == (False, True)
    assert found.files == [StarterFile("web.yaml", "kind: Pod\n")]
    assert found.faults == [(Fault("node", "stop", "node-2"), Fault("controllers", "start"))]
    assert (found.start.nodes, found.start.pace, found.start.broken[0]["kind"]) == (2, "fast", "ConfigMap")
    assert [each.kind for each in found.solution] == ["run", "fault", "type", "operator", "sleep"]
    assert found.solution[2].text == "kubectl get x \\\n  -o yaml"
    assert isinstance(found.parts[4], Reveal) and found.parts[4].question == "Why?"
    shown = found.to_json()
    assert (shown["show"], shown["minutes"]) == ({"type": "show", "view": "fleet", "object": ""}, 10)
    assert "ConfigMap" not in str(shown), "what is broken is for the learner to find"


def test_blocks_in_code_are_text() -> None:
    found = lesson("```\n:::check x\n```\n\n:::reveal Q\n```\n:::\n```\n:::\n")
    assert not any(isinstance(each, CheckBlock) for each in found.parts)
    assert isinstance(found.parts[1], Reveal) and found.parts[1].blocks[0]["text"] == ":::"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (":::alchemy\n:::\n", "mine.md:5: there is no block alchemy; known are run, file, check,"),
        (":::run\nx\n", "mine.md:5: the block run has no end: ::: is missing"),
        (":::run\nx\n:::check a\n:::\n", "mine.md:7: the block run of line 5 has no end: ::: is missing"),
        (":::\n", "mine.md:5: a block begins with :::NAME and ends with :::"),
        (":::run\n\n:::\n", "mine.md:5: there is no command"),
        (":::run loudly\nx\n:::\n", "mine.md:5: :::run may have the argument fails, and no other"),
        (":::file ../../etc/passwd\n:::\n", "mine.md:5: '../../etc/passwd' is not the name of a file, without a path"),
        (":::file .bashrc\n:::\n", "mine.md:5: '.bashrc' is not the name of a file, without a path"),
        (":::fault\nrm -rf /\n:::\n", "mine.md:6: 'rm -rf /' is no fault: use"),
        (":::operator mine\n:::\n", "mine.md:5: there is no operator 'mine'; known are postgres"),
        (":::show\nmovies\n:::\n", "mine.md:5: show: must be one of objects, chain, loops, timeline, fleet"),
        (":::reveal\nx\n:::\n", "mine.md:5: :::reveal needs the question in the same line"),
        (":::break\nkind: [\n:::\n", "mine.md:6: yaml: did not find expected node content"),
        (":::break\nkind: Pod\n:::\n", "mine.md:5: Pod: apiVersion not set"),
        (":::solution\n@shell rm\n:::\n", "mine.md:6: there is no @shell; known are @run, @fault,"),
        (":::solution\n@run\n:::\n", "mine.md:6: @run: there are not so many blocks with a run"),
        (":::solution\n@wait x\n:::\n", "mine.md:6: @wait: there is no check x"),
        (":::solution\n@answer q a\n:::\n", "mine.md:6: @answer: there is no question q"),
        (":::solution\n@operator start\n:::\n", "mine.md:6: @operator: the lesson has no operator"),
        (":::solution\ncat <<EOF\nx\n:::\n", "mine.md:6: the here-document has no end: EOF is missing"),
        (":::solution\n@sleep long\n:::\n", "mine.md:6: @sleep needs a number of seconds"),
        (":::check Bad_Id\nsay: x\nwhen: present('Pod/x')\n:::\n", "mine.md:5: :::check needs an id"),
        (":::check a\nsay: x\n:::\n", "mine.md:5: an expression in CEL is expected"),
        (":::check a\nsay: x\nwhen: 'true'\n:::\n", "mine.md:7: this check reads nothing of the cluster"),
        (":::check a\nsay: x\nwhen: present('Pod/x')\nwhat: y\n:::\n", "mine.md:8: unknown field what; known are say,"),
        (":::check a\nsay: 'now {n}'\nwhen: present('Pod/x')\n:::\n", "mine.md:6: {n} is not defined in let"),
        (":::check a\nsay: x\nwhen: '1 +'\n:::\n", "mine.md:7: CEL: ERROR: <input>:1:4: Syntax error"),
        (":::check a\nsay: x\nwhen: 'unknown(1)'\n:::\n", "mine.md:7: CEL: ERROR: <input>:1:8: undeclared reference"),
        (":::check a\nsay: x\nwhen: size(objects('Pod'))\n:::\n", "mine.md:7: the expression must be true or false"),
        (
            ":::check a\nsay: x\nwhen: size(objects(typed[0])) > 0\n:::\n",
            "mine.md:7: the first argument of objects must",
        ),
        (":::check a\nsay: x\nwhen: present('pod x')\n:::\n", "mine.md:7: present('pod x'): expected KIND/NAME"),
        (":::check a\nsay: [\n:::\n", "mine.md:6: yaml: did not find expected node content"),
        (
            ":::check a\nsay: x\nwhen: present('Pod/x')\nelse: [{say: y}]\n:::\n",
            "mine.md:8: else: each entry has when and",
        ),
        (":::check a\nsay: x\nwhen: present('Pod/x')\nhold: maybe\n:::\n", "mine.md:8: hold: must be true or false"),
        (":::check a\nsay: x\nwhen: present('Pod/x')\nhint: 5\n:::\n", "mine.md:8: hint: must be a text or a list"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(body: str, expected: str) -> None:
    found = problems(body)
    assert found[0].startswith(expected), found


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("", "mine.md:1: a lesson begins with a line ---"),
        ("---\ntitle: x\n", "mine.md:1: the fields at the beginning have no end"),
        ("---\n- x\n---\n", "mine.md:1: the fields at the beginning must be a mapping"),
        ("---\nminutes: 5\n---\n", "mine.md:1: title: is required"),
        ("---\ntitle: x\ncolour: red\n---\n", "mine.md:1: unknown field colour; known are title,"),
        ("---\ntitle: x\nminutes: 500\n---\n", "mine.md:1: minutes: must be a whole number from 1 to 60"),
        ("---\ntitle: x\nstart: {nodes: 5000}\n---\n", "mine.md:1: start.nodes: must be a whole number from 1 to 20"),
        ("---\ntitle: x\nstart: {run: rm}\n---\n", "mine.md:1: start.run is unknown; known are nodes, pace, apply"),
        (
            "---\ntitle: x\nstart: {apply: [../x.yaml]}\n---\n",
            "mine.md:1: start.apply: must be a list of names of files",
        ),
        ("---\ntitle: x\nstart: {pace: warp}\n---\n", "mine.md:1: start.pace: must be learning, real, fast or instant"),
        ("---\ntitle: &a [*a]\n---\n", "mine.md:2: yaml: "),
    ],
)
def test_front_matter(head: str, expected: str) -> None:
    found = problems("text\n", head)
    assert found[0].startswith(expected), found


def test_size_and_encoding() -> None:
    with pytest.raises(InvalidLesson, match="256 KiB at most"):
        read_lesson("mine", "mine.md", b"x" * (MAX_LESSON_BYTES + 1))
    with pytest.raises(InvalidLesson, match=r"mine\.md:2: this is not UTF-8"):
        read_lesson("mine", "mine.md", b"---\n\xff")
    with pytest.raises(InvalidLesson, match="400 parts at most"):
        lesson(":::hint\nx\n:::\n" * 402)
    with pytest.raises(InvalidLesson, match="the name of a lesson"):
        read_lesson("../mine", "x.md", HEAD.encode())


def test_two_of_the_same_name() -> None:
    check = ":::check a\nsay: x\nwhen: present('Pod/x')\n:::\n"
    assert "mine.md:9: there are two checks a" in problems(check + check)


# -- questions ---------------------------------------------------------------------------------------------------------

QUESTIONS = """
:::quiz who
Who *created* it?
- ( ) kubectl
- (x) the controller,
  of course
- ( ) the node
because: It saw
  two.
:::
:::quiz some
Which?
- [x] a
- [ ] b
- [x] c
because: Yes.
:::
:::quiz steps
In which order?
1. first
2. second
3. third
because: So.
:::
:::quiz word
What does it say?
answer: running|is running
because: It does.
:::
"""


def test_questions() -> None:
    who, some, steps, word = lesson(QUESTIONS).quizzes
    assert [each.kind for each in (who, some, steps, word)] == ["one", "many", "order", "text"]
    assert who.to_json()["options"][1] == ["the controller, of course"]
    assert who.to_json()["because"][0]["inline"] == ["It saw two."]
    assert (who.is_right([1]), who.is_right([0]), who.is_right("b"), who.is_right([True])) == (
        True,
        False,
        False,
        False,
    )
    assert (some.is_right([2, 0]), some.is_right([0]), some.is_right([0, 1, 2])) == (True, False, False)
    assert steps.shown != [0, 1, 2], "the right order is not shown"
    assert steps.is_right(steps.right) and not steps.is_right([0, 1, 2])
    shown = [steps.to_json()["options"][at][0] for at in steps.right]
    assert shown == ["first", "second", "third"]
    assert (word.is_right(" Running "), word.is_right("runnings"), word.is_right("x" * 999)) == (True, False, False)


def test_typed_answers() -> None:
    who, some, steps, word = lesson(QUESTIONS).quizzes
    assert (who.answer_of("B"), some.answer_of("a, c"), some.answer_of("ca")) == ([1], [0, 2], [2, 0])
    assert steps.answer_of("cab") == [2, 0, 1]
    assert word.answer_of(" x ") == "x"
    for quiz, text in ((who, "d"), (who, "a b"), (who, ""), (steps, "ab"), (some, "1")):
        with pytest.raises(ValueError):
            quiz.answer_of(text)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Q?\n- ( ) a\n- ( ) b\nbecause: x", "one option must be marked as right with x"),
        ("Q?\n- (x) a\n- (x) b\nbecause: x", "one option must be marked as right with x"),
        ("Q?\n- (x) a\nbecause: x", "a question has 2 to 8 options, not 1"),
        ("Q?\n- (x) a\n- [x] b\nbecause: x", "a question has either options"),
        ("- (x) a\n- ( ) b\nbecause: x", "there is no question"),
        ("Q?\n- (x) a\n- ( ) b", "because: is missing"),
        ("Q?\nanswer: a(b\nbecause: x", "answer: error parsing regexp: missing closing )"),
        ("Q?\nanswer: " + "(a{1000}){1000}" + "\nbecause: x", "answer: error parsing regexp"),
        ("Q?\n- (x) a\n- ( ) b\nbecause: x\nrun: y", "unknown field run"),
    ],
)
def test_what_is_wrong_with_a_question(body: str, expected: str) -> None:
    assert any(expected in each for each in problems(f":::quiz\n{body}\n:::\n"))


def test_a_prediction() -> None:
    text = "Q?\n- (x) a\n- ( ) b\nrun: kubectl get pods\nuntil: present(\n  'Pod/x')\nbecause: z"
    (predict,) = lesson(f":::predict\n{text}\n:::\n").predictions
    assert (predict.run, predict.faults, predict.until.needs.kinds) == ("kubectl get pods", (), frozenset({"Pod"}))
    assert any("either run: or fault:" in each for each in problems(f":::predict\n{text}\nfault: node stop a\n:::\n"))
    assert any(
        "until: is missing" in each for each in problems(":::predict\nQ?\n- (x) a\n- ( ) b\nrun: y\nbecause: z\n:::\n")
    )


# -- courses, faults, progress -----------------------------------------------------------------------------------------


def test_a_new_lesson_is_valid() -> None:
    found = read_course({"mine.md": new_lesson("Mine").encode()})
    assert (found.problems, found.lessons[0].title) == ((), "Mine")


def test_a_course_and_its_references() -> None:
    good = new_lesson("Good").encode()
    bad = new_lesson("Bad").replace("start: {nodes: 3}", "after: [none]\nstart: {apply: [no.yaml]}").encode()
    linked = new_lesson("Linked").replace("Say what", "See [it](lesson:gone) ![x](no.png). Say what").encode()
    files = {
        "good.md": good,
        "bad.md": bad,
        "linked.md": linked,
        "course.yaml": b"title: C\nlessons: [good, bad, away]\n",
    }
    found = read_course(files, "dir/")
    assert [each.name for each in found.lessons] == ["good"], "one that is invalid is left out"
    assert {str(each) for each in found.problems} == {
        "dir/course.yaml:1: lessons: there is no file away.md",
        "dir/course.yaml:1: lessons: linked.md is not in the list",
        "dir/bad.md: there is no lesson none",
        "dir/bad.md:1: start.apply: there is no file no.yaml",
    }
    found = read_course({key: value for key, value in files.items() if key != "course.yaml"})
    assert {"linked.md: there is no lesson gone", "linked.md: there is no image no.png"} <= set(
        map(str, found.problems)
    )
    many = read_course({f"l{number}.md": good for number in range(MAX_LESSONS + 5)})
    assert len(many.lessons) == MAX_LESSONS


@given(st.binary(max_size=200))
def test_any_file_gives_a_course(data: bytes) -> None:
    found = read_course({"a.md": data, "course.yaml": data[:50], "b.md": HEAD.encode() + data})
    assert isinstance(found.problems, tuple)


def test_faults() -> None:
    assert read_fault(" node  partition a-1 ") == Fault("node", "partition", "a-1")
    assert str(read_fault("scheduler stop")) == "scheduler stop"
    for text in ("node stop", "node stop ../x", "controllers partition", "fleet stop", "node stop a; rm"):
        with pytest.raises(ValueError):
            read_fault(text)
    assert isinstance(lesson(":::fault\nscheduler stop\n:::\n").parts[0], FaultBlock)


def test_progress() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    check = ":::check {0}\nsay: x\nwhen: present('Pod/x')\n:::\n"
    taken = lesson(check.format("a") + check.format("b"))
    progress = Progress("mine").met("a", now)
    assert (progress.counts(taken), progress.is_done(taken)) == ((1, 2), False)
    progress = progress.met("b", now).answered("q", [1], right=True).hinted("a", 2)
    assert progress.is_done(taken) and progress.met("a", now) is progress
    assert Progress.from_json(progress.to_json()) == progress
    assert not progress.unmet("b").is_done(taken)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"lesson": 5},
        {"revision": -1},
        {"checks": {"a": "yesterday"}},
        {"checks": ["a"]},
        {"answers": {"a": 5}},
        {"right": {"a": "yes"}},
        {"hints": {"a": "1"}},
        {"began": "x" * 200},
        {"checks": {str(number): "2026-01-01T00:00:00Z" for number in range(501)}},
    ],
)
def test_progress_that_is_not_one(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Progress.from_json({**Progress("mine").to_json(), **change})


def test_run_blocks_keep_their_text() -> None:
    (part,) = lesson(":::run\n# why\nkubectl get pods   # now\n:::\n").parts
    assert isinstance(part, Run) and part.text.startswith("# why")


def test_no_lesson_of_the_package_names_what_it_should_not() -> None:
    folder = Path(__file__).parents[3] / "src" / "setpoint" / "lessons"
    for path in folder.glob("*.md"):
        text = path.read_text()
        assert "/home/" not in text and "http://" not in text, path.name
