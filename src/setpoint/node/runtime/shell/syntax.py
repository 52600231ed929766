"""The parser of shell scripts."""

from __future__ import annotations

import re

from setpoint.meta.caching import memoized
from setpoint.node.runtime.shell.syntax_tree import (
    Case,
    Command,
    For,
    Function,
    Group,
    If,
    Item,
    Loop,
    Part,
    Pipeline,
    Redirection,
    Script,
    Simple,
    Step,
    Word,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_BRACED = re.compile(r"\$\{(#?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?#$@*!]))(:?[-=+?]|##?|%%?)?")
_BREAKS = " \t\n;&|<>()"
_CLOSERS = ("then", "do", "done", "fi", "else", "elif", "esac", "}", ")")
_PARENTHESIS = re.compile("[()]")
_MAX_DEPTH = 50


class ShellSyntaxError(ValueError):
    """The script has a syntax error."""


class IncompleteScript(ShellSyntaxError):
    """The script ends within a command: another line may complete it."""


@memoized(maxsize=1024)
def parse(text: str) -> Script:
    """Parse a script. Raise ShellSyntaxError."""
    parser = _Parser(text)
    script = parser.script(())
    if parser.at < len(parser.text):
        raise ShellSyntaxError(f'syntax error: unexpected "{parser.text[parser.at]}"')
    return script


def is_incomplete(text: str) -> bool:
    """Return whether another line may complete the script: a quote, a list, or a here-document is open."""
    backslashes = len(text) - len(text.rstrip("\\"))
    parser = _Parser(text)
    try:
        parser.script(())
    except IncompleteScript:
        return True
    except ShellSyntaxError:
        return False
    return parser.open_document or backslashes % 2 == 1


def _end_of_arithmetic(text: str, begin: int) -> int:
    """Return where the `))` of an arithmetic expansion is; -1 if it is missing."""
    depth = 0
    for found in _PARENTHESIS.finditer(text, begin):
        if found[0] == "(":
            depth += 1
        elif depth:
            depth -= 1
        else:
            return found.start() if text.startswith("))", found.start()) else -1
    return -1


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open_document = False
        """Whether a here-document has no end; it then extends to the end of the script."""
        self._depth = 0

    def _error(self, message: str) -> ShellSyntaxError:
        kind = IncompleteScript if self.at >= len(self.text) else ShellSyntaxError
        return kind(f"syntax error: {message}")

    # -- characters ---------------------------------------------------------------------------------------------------

    def _peek(self, what: str) -> bool:
        return self.text.startswith(what, self.at)

    def _blanks(self, lines: bool = False) -> None:
        text, end = self.text, len(self.text)
        while self.at < end:
            char = text[self.at]
            if char in " \t" or (lines and char in "\n;" and not self._peek(";;")):
                self.at += 1
            elif char == "\\" and text.startswith("\n", self.at + 1):
                self.at += 2
            elif char == "#":
                stop = text.find("\n", self.at)
                self.at = end if stop < 0 else stop
            else:
                return

    def _reserved(self) -> str:
        """Return the reserved word at the current position; empty if there is none."""
        match = re.compile(r"[a-z]+|[{}!]").match(self.text, self.at)
        if match is None:
            return ""
        after = self.text[match.end() : match.end() + 1]
        return match[0] if not after or after in _BREAKS else ""

    def _expect(self, word: str) -> None:
        self._blanks(lines=True)
        if self._reserved() != word:
            raise self._error(f'expecting "{word}"')
        self.at += len(word)

    # -- lists --------------------------------------------------------------------------------------------------------

    def script(self, closers: tuple[str, ...]) -> Script:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ShellSyntaxError("syntax error: nested too deeply")
        items = []
        while True:
            self._blanks(lines=True)
            if self.at >= len(self.text) or self._peek(")") or self._peek(";;") or self._reserved() in closers:
                break
            if self._reserved() in _CLOSERS:
                raise ShellSyntaxError(f'syntax error: unexpected "{self._reserved()}"')
            items.append(self._item())
        self._depth -= 1
        return Script(tuple(items))

    def _item(self) -> Item:
        steps = [Step(";", self._pipeline())]
        while True:
            self._blanks()
            if self._peek("&&") or self._peek("||"):
                joined = self.text[self.at : self.at + 2]
                self.at += 2
                self._blanks(lines=True)
                steps.append(Step(joined, self._pipeline()))
                continue
            background = self._peek("&")
            if background:
                self.at += 1
            return Item(tuple(steps), background)

    def _pipeline(self) -> Pipeline:
        negated = False
        self._blanks()
        while self._reserved() == "!":
            self.at += 1
            negated = not negated
            self._blanks()
        commands = [self._command()]
        while True:
            self._blanks()
            if not self._peek("|") or self._peek("||"):
                return Pipeline(tuple(commands), negated)
            self.at += 1
            self._blanks(lines=True)
            commands.append(self._command())

    # -- commands -----------------------------------------------------------------------------------------------------

    def _command(self) -> Command:
        word = self._reserved()
        if word in ("while", "until"):
            self.at += 5
            condition = self.script(("do",))
            return Loop(condition, self._do(), word == "until", self._redirections())
        if word == "for":
            return self._for()
        if word == "if":
            return self._if()
        if word == "case":
            return self._case()
        if word == "{":
            self.at += 1
            body = self.script(("}",))
            self._expect("}")
            return Group(body, False, self._redirections())
        if self._peek("("):
            self.at += 1
            body = self.script(())
            self._close()
            return Group(body, True, self._redirections())
        function = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*\(\)\s*").match(self.text, self.at)
        if function is not None:
            self.at = function.end()
            self._expect("{")
            body = self.script(("}",))
            self._expect("}")
            return Function(function[1], body)
        return self._simple()

    def _close(self) -> None:
        if not self._peek(")"):
            raise self._error('expecting ")"')
        self.at += 1

    def _do(self) -> Script:
        self._expect("do")
        body = self.script(("done",))
        self._expect("done")
        return body

    def _for(self) -> For:
        self.at += 3
        self._blanks()
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise ShellSyntaxError("syntax error: bad for loop variable")
        self.at = match.end()
        self._blanks(lines=True)
        words: list[Word] = []
        if self._reserved() == "in":
            self.at += 2
            self._blanks()
            while self.at < len(self.text) and self.text[self.at] not in ";\n":
                words.append(self._word())
                self._blanks()
        return For(match[0], tuple(words), self._do(), self._redirections())

    def _if(self) -> If:
        self.at += 2
        branches, otherwise = [], None
        while True:
            condition = self.script(("then",))
            self._expect("then")
            branches.append((condition, self.script(("elif", "else", "fi"))))
            self._blanks(lines=True)
            word = self._reserved()
            self.at += len(word)
            if word == "elif":
                continue
            if word == "else":
                otherwise = self.script(("fi",))
                self._expect("fi")
            elif word != "fi":
                raise self._error('expecting "fi"')
            return If(tuple(branches), otherwise)

    def _case(self) -> Case:
        self.at += 4
        self._blanks()
        subject = self._word()
        self._expect("in")
        branches: list[tuple[tuple[Word, ...], Script]] = []
        while True:
            self._blanks(lines=True)
            if self._reserved() == "esac":
                self.at += 4
                return Case(subject, tuple(branches))
            if self._peek("("):
                self.at += 1
            patterns = [self._word()]
            self._blanks()
            while self._peek("|"):
                self.at += 1
                self._blanks()
                patterns.append(self._word())
                self._blanks()
            self._close()
            branches.append((tuple(patterns), self.script(("esac",))))
            if self._peek(";;"):
                self.at += 2

    def _simple(self) -> Simple:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirections: list[Redirection] = []
        while True:
            self._blanks()
            if (found := self._redirection()) is not None:
                redirections.append(found)
                continue
            if self.at >= len(self.text) or self.text[self.at] in "\n;&|)":
                break
            match = None if words else _ASSIGNMENT.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
                assignments.append((match[1], self._word(empty=True)))
            else:
                words.append(self._word())
        if not (assignments or words or redirections):
            here = self.text[self.at : self.at + 1] or "end of file"
            raise self._error(f'unexpected "{here}"')
        return Simple(tuple(assignments), tuple(words), tuple(redirections))

    def _redirections(self) -> tuple[Redirection, ...]:
        found: list[Redirection] = []
        while True:
            self._blanks()
            one = self._redirection()
            if one is None:
                return tuple(found)
            found.append(one)

    def _redirection(self) -> Redirection | None:
        match = re.compile(r"([0-9]?)(>>|>&|<<-?|<|>)|&>()").match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        operator = match[2] or ">"
        self._blanks()
        if operator.startswith("<<"):
            return Redirection(0, "<<", self._here_document())
        descriptor = int(match[1]) if match[1] else (0 if operator == "<" else 1)
        return Redirection(descriptor, operator, self._word())

    def _here_document(self) -> Word:
        mark = self._word()
        literal, end = any(part.quoted for part in mark), "".join(part.value for part in mark)
        start = self.text.find("\n", self.at)
        if start < 0:
            raise IncompleteScript("syntax error: here-document without a body")
        lines = self.text[start + 1 :].split("\n")
        body = []
        for number, line in enumerate(lines):
            if line.strip() == end:
                rest = "\n".join(lines[number + 1 :])
                break
            body.append(line)
        else:
            rest, self.open_document = "", True
        content = "".join(f"{line}\n" for line in body)
        # The rest of the command's line comes first, then what follows the document.
        self.text = self.text[:start] + ("\n" + rest if rest else "")
        if literal:
            return (Part("text", content, True),)
        inner = _Parser(content)
        return tuple(inner._double_quoted(stop=""))

    # -- words --------------------------------------------------------------------------------------------------------

    def _word(self, empty: bool = False) -> Word:
        parts: list[Part] = []
        text = self.text
        start = self.at
        while self.at < len(text) and text[self.at] not in _BREAKS:
            char = text[self.at]
            if char == "'":
                stop = text.find("'", self.at + 1)
                if stop < 0:
                    raise IncompleteScript("syntax error: unterminated quoted string")
                parts.append(Part("text", text[self.at + 1 : stop], True))
                self.at = stop + 1
            elif char == '"':
                self.at += 1
                found = self._double_quoted(stop='"')
                parts += found or [Part("text", "", True)]
                self.at += 1
            elif char == "\\":
                if not text.startswith("\n", self.at + 1):
                    parts.append(Part("text", text[self.at + 1 : self.at + 2], True))
                self.at += 2
            elif char in "$`":
                parts.append(self._expansion(quoted=False))
            else:
                stop = self.at
                while stop < len(text) and text[stop] not in _BREAKS and text[stop] not in "'\"\\$`":
                    stop += 1
                parts.append(Part("text", text[self.at : stop], False))
                self.at = stop
        if self.at == start and not empty:
            here = text[self.at : self.at + 1] or "end of file"
            raise self._error(f'unexpected "{here}"')
        return tuple(parts)

    def _double_quoted(self, stop: str) -> list[Part]:
        parts: list[Part] = []
        text, plain = self.text, ""
        while True:
            if self.at >= len(text):
                if stop:
                    raise IncompleteScript("syntax error: unterminated quoted string")
                break
            char = text[self.at]
            if char == stop:
                break
            if char == "\\" and text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                follower = text[self.at + 1]
                plain += "" if follower == "\n" else follower
                self.at += 2
            elif char in "$`":
                if plain:
                    parts.append(Part("text", plain, True))
                    plain = ""
                parts.append(self._expansion(quoted=True))
            else:
                plain += char
                self.at += 1
        if plain:
            parts.append(Part("text", plain, True))
        return parts

    def _expansion(self, quoted: bool) -> Part:
        text = self.text
        if text[self.at] == "`":
            stop = text.find("`", self.at + 1)
            if stop < 0:
                raise IncompleteScript("syntax error: unterminated quoted string")
            inner = text[self.at + 1 : stop]
            self.at = stop + 1
            return Part("command", inner, quoted, script=parse(inner))
        if self._peek("$(("):
            stop = _end_of_arithmetic(text, self.at + 3)
            if stop < 0:
                raise IncompleteScript("syntax error: missing '))'")
            inner = text[self.at + 3 : stop]
            self.at = stop + 2
            return Part("arithmetic", inner, quoted)
        if self._peek("$("):
            start = self.at + 2
            self.at = start
            script = self.script(())
            inner = self.text[start : self.at]
            self._close()
            return Part("command", inner, quoted, script=script)
        if self._peek("${"):
            return self._braced(quoted)
        match = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9?#$@*!])").match(text, self.at)
        if match is None:
            self.at += 1
            return Part("text", "$", quoted)
        self.at = match.end()
        return Part("variable", match[1], quoted)

    def _braced(self, quoted: bool) -> Part:
        match = _BRACED.match(self.text, self.at)
        if match is None:
            raise ShellSyntaxError("syntax error: bad substitution")
        self.at = match.end()
        argument: list[Part] = []
        if match[2]:
            argument = self._double_quoted(stop="}")
        if not self._peek("}"):
            raise ShellSyntaxError("syntax error: bad substitution")
        self.at += 1
        return Part("variable", match[1], quoted, operator=match[2] or "", argument=tuple(argument))
