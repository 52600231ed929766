from __future__ import annotations

import os
import pty
import select
import termios

from setpoint.cli.terminal import raw


def test_what_was_typed_before_raw_mode_is_kept() -> None:
    person, program = pty.openpty()
    try:
        os.write(person, b"typed ahead")
        with os.fdopen(program, "rb", buffering=0, closefd=False) as stream, raw(stream):
            assert not termios.tcgetattr(program)[3] & termios.ICANON
            assert select.select([program], [], [], 10)[0], "what was typed is lost"
            assert os.read(program, 100) == b"typed ahead"
        assert termios.tcgetattr(program)[3] & termios.ICANON
    finally:
        os.close(person)
        os.close(program)
