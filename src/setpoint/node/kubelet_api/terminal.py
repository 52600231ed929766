"""What a terminal does between a person's keys and a program: echo, editing a line, line ends."""

from __future__ import annotations

_INTERRUPT, _END, _BACKSPACES, _KILL_LINE = 0x03, 0x04, (0x08, 0x7F), 0x15


class Terminal:
    """In its usual mode: a line goes to the program when it is complete."""

    def __init__(self) -> None:
        self._line = bytearray()
        self.ended = False
        """The person has said that there is no more."""
        self.interrupted = False

    def typed(self, keys: bytes) -> tuple[bytes, bytes]:
        """What is shown, and what the program gets."""
        shown, passed = bytearray(), bytearray()
        for key in keys:
            if key in (0x0D, 0x0A):
                shown += b"\r\n"
                passed += self._line + b"\n"
                self._line.clear()
            elif key == _INTERRUPT:
                shown += b"^C\r\n"
                self._line.clear()
                self.interrupted = True
            elif key == _END:
                if self._line:
                    passed += self._line
                    self._line.clear()
                else:
                    self.ended = True
            elif key in _BACKSPACES:
                if self._line:
                    _drop_character(self._line)
                    shown += b"\b \b"
            elif key == _KILL_LINE:
                shown += b"\b \b" * len(self._line.decode("utf-8", "replace"))
                self._line.clear()
            elif key == 0x09 or key >= 0x20:
                self._line.append(key)
                shown.append(key)
        return bytes(shown), bytes(passed)


def _drop_character(line: bytearray) -> None:
    while line:
        last = line.pop()
        if last & 0xC0 != 0x80:  # not in the middle of one
            return


def for_terminal(output: bytes) -> bytes:
    return output.replace(b"\n", b"\r\n")
