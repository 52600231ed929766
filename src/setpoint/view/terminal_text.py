"""Makes output of programs harmless for a terminal in a browser: only colours, movements and erasing stay."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters that are not shown: all but bell, backspace, tab, line ends and escape; and those that change the
direction of text, with which a name can look like another one."""
_KEPT: Final = "ABCDEFGHJKPXdfmsu`LM@"
"""Final characters of the control sequences that stay: movements of the cursor, erasing, inserting and deleting
characters and lines, and colours (`m`)."""
_TOKEN: Final = re.compile(
    r"\x1b\[(?P<private>[<-?]?)(?P<parameters>[0-9;:]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c|(?=[\r\n]))"
    r"|\x1b[78]"
    r"|\x1b[ -/]*[0-~]"
)
"""A control sequence; a string for the terminal itself, such as its title or the clipboard, which ends with its line at
the latest; another escape sequence."""
_OPEN: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c\r\n]*\x1b?|[ -/]*)?\Z")
"""The beginning of a sequence at the end of a text."""
_MAX_OPEN: Final = 4096
_MAX_PARAMETERS: Final = 64


class TerminalFilter:
    """Filters a stream of text. A sequence that is split between two texts is kept until it is complete."""

    def __init__(self) -> None:
        self._open = ""
        self._dropping = False
        """Whether a string for the terminal that is too long to keep is still open."""

    def filtered(self, text: str) -> str:
        """Return what may be shown of the next text of the stream."""
        text, self._open = self._open + text, ""
        if self._dropping:
            end = re.search(r"\x07|\x1b\\|\x9c|(?=[\r\n])", text)
            if end is None:
                self._open = "\x1b" if text.endswith("\x1b") else ""
                return ""
            text, self._dropping = text[end.end() :], False
        if "\x1b" not in text:
            return _CONTROL.sub(_shown, text)
        opened = _OPEN.search(text)
        if opened is not None:
            rest, text = text[opened.start() :], text[: opened.start()]
            if len(rest) > _MAX_OPEN:
                self._dropping = True
                self._open = "\x1b" if rest.endswith("\x1b") else ""
            else:
                self._open = rest
        parts, at = list[str](), 0
        for token in _TOKEN.finditer(text):
            parts.append(_plain(text[at : token.start()]))
            parts.append(_kept(token))
            at = token.end()
        parts.append(_plain(text[at:]))
        return "".join(parts)


def _plain(text: str) -> str:
    return _CONTROL.sub(_shown, text).replace("\x1b", "␛")


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"


def _kept(token: re.Match[str]) -> str:
    if token[0] in ("\x1b7", "\x1b8"):
        return token[0]
    final = token["final"]
    if final is None or token["private"] or token["between"] or final not in _KEPT:
        return ""
    return token[0] if len(token["parameters"]) <= _MAX_PARAMETERS else ""
