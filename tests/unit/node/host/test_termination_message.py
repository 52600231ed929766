from __future__ import annotations

import os
from pathlib import Path

from setpoint.node.host.termination_message import message_limit, read_termination_message, truncate


def log_lines(*lines: str, tag: str = "F") -> str:
    return "".join(f"2030-01-01T00:00:00.000000000Z stdout {tag} {line}\n" for line in lines)


def test_the_file_is_the_message(tmp_path: Path) -> None:
    (tmp_path / "message").write_text("reason")
    assert read_termination_message(str(tmp_path / "message"), "") == "reason"


def test_the_end_of_a_long_file_is_the_message(tmp_path: Path) -> None:
    (tmp_path / "message").write_text("x" * 5000 + "end")
    found = read_termination_message(str(tmp_path / "message"), "")
    assert len(found) == 4096 and found.endswith("end")


def test_an_empty_or_missing_file_falls_back_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text(log_lines("one", "two"))
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        assert read_termination_message(str(tmp_path / name), str(log)) == "one\ntwo\n"
        assert read_termination_message(str(tmp_path / name), "") == ""


def test_the_log_is_limited_to_80_lines_and_2_kibibytes(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text(log_lines(*map(str, range(100))))
    assert read_termination_message("", str(log)) == "".join(f"{number}\n" for number in range(20, 100))
    log.write_text(log_lines(*("x" * 100 for _ in range(80))))
    assert read_termination_message("", str(log)) == "".join("x" * 100 + "\n" for _ in range(80))[-2048:]
    log.write_text(log_lines(*("x" * 1000 for _ in range(1000))))
    assert read_termination_message("", str(log)) == ("x" * 1000 + "\n" + "x" * 1000 + "\n" + "x" * 1000 + "\n")[-2048:]


def test_parts_of_a_line_are_joined(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text(log_lines("be", tag="P") + log_lines("gin") + "broken\n" + log_lines("end"))
    assert read_termination_message("", str(log)) == "begin\nend\n"


def test_errors_are_the_message(tmp_path: Path) -> None:
    found = read_termination_message("", str(tmp_path / "missing"))
    assert found == "Error on reading termination message from logs: No such file or directory"
    found = read_termination_message(str(tmp_path), "")
    assert found == f"Error on reading termination log {tmp_path}: Is a directory"


def test_neither_links_nor_pipes_are_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert "secret" not in read_termination_message(str(tmp_path / "link"), "").replace(str(tmp_path), "")
    os.mkfifo(tmp_path / "pipe")
    assert read_termination_message(str(tmp_path / "pipe"), "") is not None


def test_messages_share_12_kibibytes_per_pod() -> None:
    assert message_limit(1) == 12288 and message_limit(3) == 4096 and message_limit(0) == 12288
    assert truncate("abc", 3) == "abc" and truncate("abcd", 3) == "abc" and truncate("aä", 2) == "a"
