"""Reading of the blocks of a lesson (`blocks.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.manifests import ManifestProblem, manifests
from setpoint.meta.objects import Obj
from setpoint.view.course.blocks import (
    OPERATORS,
    VIEWS,
    CheckBlock,
    Fault,
    FaultBlock,
    Hint,
    OperatorBlock,
    Part,
    Predict,
    RawBlock,
    Reveal,
    Run,
    Show,
    StarterFile,
    Step,
    read_fault,
)
from setpoint.view.course.checks import (
    NAME,
    Check,
    Expression,
    Needs,
    Otherwise,
    compile_expression,
    placeholders,
)
from setpoint.view.course.markdown import FILE_NAME, Line, read_markdown
from setpoint.view.course.problems import ProblemList
from setpoint.view.course.quiz import read_quiz

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_CHECK_FIELDS = ("say", "let", "when", "else", "hint", "hold")
_MAX_LET, _MAX_ELSE, _MAX_HINTS, _MAX_SENTENCE = 8, 8, 6, 300
_MAX_FILE = 16 * 1024
_DIRECTIVES = ("run", "fault", "operator", "answer", "wait", "sleep")
_HERE = re.compile(r"<<-?[ ]?['\"]?([A-Za-z_]{1,40})['\"]?[ ]*$")
_YAML_LINE = re.compile(r"yaml: line (\d{1,9}): (.*)", re.DOTALL)
_OBJECT = re.compile(r"[a-zA-Z][a-zA-Z0-9.]{0,62}/[a-zA-Z0-9.:_-]{1,253}")


def read_yaml(lines: Sequence[Line], problems: ProblemList) -> Any:
    """Return the YAML value of some lines; None after a problem was added, whose line is that of the file."""
    if not lines:
        return None
    ahead = lines[0].number - 1
    data = "\n".join(each.text for each in lines).encode()
    try:
        value, repeated = parse_yaml(b"\n" * ahead + data)
    except BodyError as error:
        _add_yaml_problem(str(error), lines[0].number, problems)
        return None
    for each in repeated:
        problems.add(lines[0].number, each)
    return value


def _add_yaml_problem(message: str, line: int, problems: ProblemList) -> None:
    """Add the problem of a YAML text, at the line that the message names, or else at `line`."""
    found = _YAML_LINE.search(message)
    if found is not None:
        problems.add(max(int(found[1]), line), f"yaml: {found[2]}")
    else:
        problems.add(line, message.replace("error converting YAML to JSON: ", ""))


def read_block(raw: RawBlock, count: int, problems: ProblemList) -> Part | None:
    """Return the part of a block, or None after a problem was added. `count` is how many of its name there were."""
    text = "\n".join(each.text for each in raw.lines).strip("\n")
    if raw.name in ("hint", "fault", "show") and raw.argument:
        problems.add(raw.line, f":::{raw.name} has no argument")
    match raw.name:
        case "run":
            commands = tuple(each.text for each in command_lines(raw.lines, problems))
            if not commands:
                problems.add(raw.line, "there is no command")
            if raw.argument not in ("", "fails"):
                problems.add(raw.line, ":::run may have the argument fails, and no other")
            return Run(text, commands, raw.argument == "fails")
        case "file":
            return _file(raw, text, problems)
        case "check":
            return _check(raw, problems)
        case "quiz":
            quiz, fields = read_quiz(_identity(raw, count, problems), raw.lines, raw.line, problems)
            _refuse(fields, problems)
            return quiz
        case "predict":
            return _predict(raw, count, problems)
        case "reveal":
            if not raw.argument:
                problems.add(raw.line, ":::reveal needs the question in the same line")
            return Reveal(raw.argument, read_markdown(raw.lines, problems))
        case "hint":
            return Hint(read_markdown(raw.lines, problems))
        case "fault":
            return FaultBlock(read_faults(raw.lines, problems))
        case "operator":
            if raw.argument not in OPERATORS:
                problems.add(raw.line, f"there is no operator {raw.argument!r}; known are {', '.join(OPERATORS)}")
            return OperatorBlock(raw.argument)
        case "show":
            return read_show(text.strip(), raw.line, problems)
    raise AssertionError(raw.name)


def _identity(raw: RawBlock, count: int, problems: ProblemList) -> str:
    found = raw.argument or f"{raw.name}-{count}"
    if not _ID.fullmatch(found):
        problems.add(raw.line, f"{found[:60]!r} is not an id: lower case letters, digits and -")
    return found


def _refuse(fields: dict[str, Line], problems: ProblemList) -> None:
    for name, line in fields.items():
        problems.add(line.number, f"unknown field {name}")


def _file(raw: RawBlock, text: str, problems: ProblemList) -> StarterFile:
    if not FILE_NAME.fullmatch(raw.argument):
        problems.add(raw.line, f"{raw.argument[:80]!r} is not the name of a file, without a path")
    if len(text) > _MAX_FILE:
        problems.add(raw.line, f"a file has {_MAX_FILE // 1024} KiB at most")
    return StarterFile(raw.argument, text + "\n" if text else "")


def read_faults(lines: Sequence[Line], problems: ProblemList) -> tuple[Fault, ...]:
    found = []
    for line in lines:
        if line.text.strip():
            try:
                found.append(read_fault(line.text))
            except ValueError as error:
                problems.add(line.number, str(error))
    if not found and lines:
        problems.add(lines[0].number, "there is no fault")
    return tuple(found)


def read_show(text: Any, line: int, problems: ProblemList) -> Show:
    """Return what the page turns to: a view, and the object to select."""
    words = text.split() if isinstance(text, str) else []
    if not words or words[0] not in VIEWS or len(words) > 2:
        problems.add(line, f"show: must be one of {', '.join(VIEWS)}, and perhaps KIND/NAME")
        return Show("objects")
    if len(words) == 2 and not _OBJECT.fullmatch(words[1]):
        problems.add(line, f"show: {words[1][:80]!r} is not KIND/NAME")
    return Show(words[0], words[1] if len(words) == 2 else "")


def read_break(raw: RawBlock, problems: ProblemList) -> list[Obj]:
    """Return the objects of a block."""
    text = "\n".join(each.text for each in raw.lines)
    try:
        found = manifests(b"\n" * raw.line + text.encode())
    except (ManifestProblem, BodyError) as error:
        _add_yaml_problem(str(error), raw.line, problems)
        return []
    if not found:
        problems.add(raw.line, "there are no manifests")
    return found


def read_solution(raw: RawBlock, problems: ProblemList) -> list[Step]:
    """Return the steps of a solution."""
    steps: list[Step] = []
    for line in command_lines(raw.lines, problems):
        if not line.text.startswith("@"):
            steps.append(Step(line.number, "type", line.text))
            continue
        kind, _, rest = line.text[1:].partition(" ")
        if kind not in _DIRECTIVES:
            known = ", ".join(f"@{one}" for one in _DIRECTIVES)
            problems.add(line.number, f"there is no @{kind[:40]}; known are {known}")
        elif kind == "fault" and rest.strip():
            try:
                read_fault(rest)
            except ValueError as error:
                problems.add(line.number, str(error))
        elif kind == "sleep" and not re.fullmatch(r"\d{1,4}", rest.strip()):
            problems.add(line.number, "@sleep needs a number of seconds")
        steps.append(Step(line.number, kind, rest.strip()))
    return steps


def command_lines(lines: Sequence[Line], problems: ProblemList) -> list[Line]:
    """Return the commands of some lines, without comments: a line that ends in \\ goes on, and so does a
    here-document."""
    found: list[Line] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        text = line.text.strip()
        at += 1
        if not text or text.startswith("#"):
            continue
        command = [text]
        while command[-1].endswith("\\") and at < len(lines):
            command.append(lines[at].text)
            at += 1
        if here := _HERE.search(command[-1]):
            while at < len(lines) and (len(command) == 1 or command[-1].strip() != here[1]):
                command.append(lines[at].text)
                at += 1
            if command[-1].strip() != here[1]:
                problems.add(line.number, f"the here-document has no end: {here[1]} is missing")
        found.append(Line(line.number, "\n".join(command)))
    return found


# -- checks and predictions --------------------------------------------------------------------------------------------


def _predict(raw: RawBlock, count: int, problems: ProblemList) -> Predict | None:
    quiz, fields = read_quiz(_identity(raw, count, problems), raw.lines, raw.line, problems)
    run, fault, until = (fields.pop(name, None) for name in ("run", "fault", "until"))
    _refuse(fields, problems)
    if (run is None) == (fault is None):
        problems.add(raw.line, "a prediction has either run: or fault:")
    if until is None:
        problems.add(raw.line, "until: is missing: an expression that is true when the outcome can be seen")
        return None
    expression = compile_expression(until.text, until.number, problems)
    if expression is None:
        return None
    return Predict(
        quiz,
        run.text if run is not None else "",
        read_faults([fault], problems) if fault is not None else (),
        expression,
    )


def _check(raw: RawBlock, problems: ProblemList) -> CheckBlock | None:
    if not _ID.fullmatch(raw.argument):
        problems.add(raw.line, ":::check needs an id: lower case letters, digits and -")
    known = len(problems.found)
    found = read_yaml(raw.lines, problems)
    if not isinstance(found, dict):
        if len(problems.found) > known:
            return None
        problems.add(raw.line, f"a check has the fields {', '.join(_CHECK_FIELDS)}")
        return None
    lines = _field_lines(raw)
    for name in found:
        if name not in _CHECK_FIELDS:
            problems.add(
                lines.get(name, raw.line), f"unknown field {str(name)[:60]}; known are {', '.join(_CHECK_FIELDS)}"
            )
    let = _let(found.get("let", {}), raw, lines.get("let", raw.line), problems)
    when = compile_expression(found.get("when"), lines.get("when", raw.line), problems, [*let])
    message = _sentence(found.get("say"), [*let], lines.get("say", raw.line), problems)
    otherwise = _otherwise(found.get("else", []), [*let], lines.get("else", raw.line), problems)
    hold = found.get("hold", False)
    if not isinstance(hold, bool):
        problems.add(lines.get("hold", raw.line), "hold: must be true or false")
    if when is None:
        return None
    needs = Needs()
    for each in (*let.values(), when, *(one.when for one in otherwise)):
        needs |= each.needs
    if not needs:
        problems.add(when.line, "this check reads nothing of the cluster, so it never changes")
    hints = _hints(found.get("hint", []), lines.get("hint", raw.line), problems)
    return CheckBlock(Check(raw.argument, raw.line, message, let, when, otherwise, hints, hold is True, needs))


def _field_lines(raw: RawBlock) -> dict[str, int]:
    """Return the lines of the fields of a mapping."""
    found: dict[str, int] = {}
    for line in raw.lines:
        name, colon, _ = line.text.partition(":")
        if colon and name.isalpha():
            found.setdefault(name, line.number)
    return found


def _let(found: Any, raw: RawBlock, line: int, problems: ProblemList) -> dict[str, Expression]:
    """Return the variables in the order of the text: each may use those before it."""
    if not isinstance(found, dict) or len(found) > _MAX_LET:
        problems.add(line, f"let: must map names to expressions, at most {_MAX_LET}")
        return {}
    text_of_let = "\n".join(each.text for each in raw.lines if each.number >= line)
    let: dict[str, Expression] = {}
    for name, text in sorted(found.items(), key=lambda each: text_of_let.find(f"{each[0]}:")):
        if not isinstance(name, str) or not NAME.fullmatch(name):
            problems.add(line, f"let: {str(name)[:60]!r} is not a name")
        elif (expression := compile_expression(text, line, problems, [*let], result="any")) is not None:
            let[name] = expression
    return let


def _sentence(found: Any, names: Sequence[str], line: int, problems: ProblemList) -> str:
    if not isinstance(found, str) or not 1 <= len(found) <= _MAX_SENTENCE:
        problems.add(line, f"say: is required, a sentence of at most {_MAX_SENTENCE} characters")
        return ""
    for name in placeholders(found):
        if name not in names:
            problems.add(line, f"{{{name}}} is not defined in let")
    return found


def _otherwise(found: Any, names: Sequence[str], line: int, problems: ProblemList) -> tuple[Otherwise, ...]:
    if not isinstance(found, list) or len(found) > _MAX_ELSE:
        problems.add(line, f"else: must be a list of when and say, at most {_MAX_ELSE}")
        return ()
    cases = []
    for each in found:
        if not isinstance(each, dict) or set(each) != {"when", "say"}:
            problems.add(line, "else: each entry has when and say")
            continue
        when = compile_expression(each["when"], line, problems, names)
        message = _sentence(each["say"], names, line, problems)
        if when is not None:
            cases.append(Otherwise(when, message))
    return tuple(cases)


def _hints(found: Any, line: int, problems: ProblemList) -> tuple[list[dict[str, Any]], ...]:
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or len(texts) > _MAX_HINTS or not all(isinstance(each, str) for each in texts):
        problems.add(line, f"hint: must be a text or a list of at most {_MAX_HINTS}")
        return ()
    return tuple(read_markdown([Line(line, each) for each in text.split("\n")], problems) for text in texts)
