"""Files and typed lines of the page's terminals: bounded, shared, and kept over restarts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from setpoint.web.workspace import HOME, TypedLine, Workspaces

LESSON = "/forks/lesson-loop"
FILE = f"{HOME}/web.yaml"


def workspaces(folder: Path) -> Workspaces:
    return Workspaces(directory=folder / "workspaces")


@pytest.mark.parametrize("cluster", ["", LESSON, "/forks/lesson-own-mine"])
def test_files_and_lines_survive_a_restart(tmp_path: Path, cluster: str) -> None:
    workspace = workspaces(tmp_path).of("admin", cluster)
    workspace.files.write(FILE, "kind: Pod\n")
    workspace.files.write("/tmp/bytes", b"\xff\x00".decode("utf-8", "surrogateescape"))
    workspace.add_line(5.5, "kubectl apply -f web.yaml")
    workspace.save()
    again = workspaces(tmp_path).of("admin", cluster)
    assert again.file_texts() == {"web.yaml": "kind: Pod\n", "/tmp/bytes": "\udcff\x00"}
    assert [*again.typed] == [TypedLine(5.5, "kubectl apply -f web.yaml")]
    again.files.remove(FILE)
    again.save()
    assert [*workspaces(tmp_path).of("admin", cluster).file_texts()] == ["/tmp/bytes"]
    for user, other in (("bob", cluster), ("admin", "/forks/lesson-other")):
        assert not workspaces(tmp_path).of(user, other).typed, "it belongs to one user and one logical cluster"
    found = [tmp_path / "workspaces", *(tmp_path / "workspaces").iterdir()]
    assert [each.stat().st_mode & 0o777 for each in found] == [0o700, 0o600], "only the owner can read them"


@pytest.mark.parametrize("cluster", ["/forks/try", "/forks/lesson-dropped-mine", "/seats/s00000001"])
def test_what_ends_with_the_server_leaves_nothing(tmp_path: Path, cluster: str) -> None:
    workspace = workspaces(tmp_path).of("admin", cluster)
    workspace.files.write(FILE, "x")
    workspace.save()
    assert not [*tmp_path.iterdir()]


def test_a_past_moment_has_the_files_of_the_present(tmp_path: Path) -> None:
    found = workspaces(tmp_path)
    assert found.of("admin", f"{LESSON}/at/55") is found.of("admin", LESSON)


def test_many_lines_in_a_second_are_written_once(tmp_path: Path) -> None:
    workspace = workspaces(tmp_path).of("admin", "")

    def kept() -> int:
        return len(workspaces(tmp_path).of("admin", "").typed)

    for number in range(5):
        workspace.add_line(number, f"echo {number}")
        workspace.save_sometimes(100 + number / 10)
    assert kept() == 1
    workspace.save_sometimes(101)
    assert kept() == 5
    workspace.add_line(9, "exit")
    workspace.save()
    assert kept() == 6


def test_a_workspace_that_makes_room_is_saved(tmp_path: Path) -> None:
    found = Workspaces(1, tmp_path / "workspaces")
    found.of("admin", "").add_line(1, "ls")
    found.of("admin", LESSON)
    assert [line.text for line in found.of("admin", "").typed] == ["ls"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"format": 1, "files": {"a": 5}, "lines": []}', b"[" * 100_000])
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    workspace = workspaces(tmp_path).of("admin", "")
    workspace.add_line(1, "ls")
    workspace.save()
    (file,) = (tmp_path / "workspaces").iterdir()
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        workspace = workspaces(tmp_path).of("admin", "")
    assert not workspace.typed and f"kept as {file.name}.damaged" in caplog.text
    workspace.add_line(2, "ls -l")
    workspace.save()
    assert len(workspaces(tmp_path).of("admin", "").typed) == 1
    assert file.with_name(f"{file.name}.damaged").read_bytes() == content


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "workspaces").write_text("a file")
    workspace = workspaces(tmp_path).of("admin", "")
    workspace.add_line(1, "ls")
    with caplog.at_level(logging.WARNING):
        workspace.save()
    assert "cannot be saved" in caplog.text and [line.text for line in workspace.typed] == ["ls"]
