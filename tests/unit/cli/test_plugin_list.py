from __future__ import annotations

from pathlib import Path

from command_line import typed_offline


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_plugins_are_listed_with_their_problems(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    program(one / "kubectl-foo")
    program(one / "setpoint-config-view")
    program(one / "other")
    program(two / "kubectl-foo", 0o644)
    (two / "kubectl-directory").mkdir()
    done = typed_offline("plugin list", tmp_path, PATH=f"{one}:{one}:{two}:{tmp_path}/missing")
    assert done.code == 1
    listed = f"{one}/kubectl-foo\n{one}/setpoint-config-view\n{two}/kubectl-foo\n"
    assert done.out == f"The following compatible plugins are available:\n\n{listed}"
    assert done.err == (
        '  - warning: setpoint-config-view overwrites existing command: "setpoint config view"\n'
        f"  - warning: {two}/kubectl-foo identified as a kubectl plugin, but it is not executable\n"
        f"  - warning: {two}/kubectl-foo is overshadowed by a similarly named plugin: {one}/kubectl-foo\n"
        "\nerror: 3 plugin warnings were found\n"
    )
    fine = typed_offline("plugin list --name-only", tmp_path, PATH=f"{one}")
    assert "kubectl-foo\n" in fine.out


def test_no_plugins(tmp_path: Path) -> None:
    done = typed_offline("plugin list", tmp_path, PATH=str(tmp_path))
    assert (done.code, done.out) == (1, "")
    assert "unable to find any setpoint or kubectl plugins in your PATH" in done.err
