"""Dispatch of commands, error messages, exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Typed, typed_offline

from setpoint import __version__
from setpoint.cli.catalog import ROOT
from setpoint.cli.command import Command, loaded
from setpoint.cli.failures import Failed, Several, error_text
from setpoint.meta.errors import ApiError, NotFound, Unauthorized, from_status


def test_help_lists_the_commands(tmp_path: Path) -> None:
    done = typed_offline("--help", tmp_path)
    assert done.code == 0
    assert "  up " in done.out
    assert typed_offline("", tmp_path).out == done.out


def every_command(command: Command = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    for name, child in command.children.items():
        found = loaded(child)
        yield " ".join((*path, name)), found
        yield from every_command(found, (*path, name))


def test_the_help_of_every_command_lists_all_flags(tmp_path: Path) -> None:
    """Also those that cannot run without a certain flag."""
    for name, command in every_command():
        done = typed_offline(f"{name} --help", tmp_path)
        assert command.raw or done.code == 0, f"{name}: {done.err}"
        silent = [flag.name for flag in command.flags if not (flag.help or flag.hidden or flag.deprecated)]
        assert not silent, f"the help of `{name}` says nothing of {silent}"


def test_the_help_of_a_server_begins_with_the_common_flags(tmp_path: Path) -> None:
    for name in ("up", "apiserver"):
        short = typed_offline(f"{name} --help", tmp_path).out
        assert len(short.splitlines()) < 80, f"nobody reads the help of {name}"
        assert all(f"--{flag} " in short for flag in ("data-dir", "port", "store")), short
        assert "--audit-policy-file" not in short
        assert f'Use "setpoint {name} --help-all" for the other ' in short
        assert "--audit-policy-file" in typed_offline(f"{name} --help-all", tmp_path).out
    # The flag is there for every command, and a command without groups has no more to show.
    assert typed_offline("get --help-all", tmp_path).out == typed_offline("get --help", tmp_path).out


def test_help_is_also_a_command(tmp_path: Path) -> None:
    assert typed_offline("help", tmp_path).out == typed_offline("--help", tmp_path).out
    for line in ("get", "create deployment", "nodes add"):
        assert typed_offline(f"help {line}", tmp_path).out == typed_offline(f"{line} --help", tmp_path).out
    refused = typed_offline("help rollout sttus", tmp_path)
    assert (refused.code, refused.out) == (1, "")
    assert "there is no command `setpoint rollout sttus`: did you mean `setpoint help rollout status`?" in refused.err


def test_version_flag(tmp_path: Path) -> None:
    done = typed_offline("--version", tmp_path)
    assert (done.code, done.out) == (0, f"setpoint {__version__}\n")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("create deploymnet web --image=nginx", "deployment"),
        ("create secret genric x", "generic"),
        ("nodes stopp node-1", "stop"),
        ("apply view-last-aplied x", "view-last-applied"),
        ("cluster-info dmp", "dump"),
        ("rollout sttus deployment/web", "status"),
    ],
)
def test_a_misspelt_subcommand_gets_a_suggestion(tmp_path: Path, line: str, meant: str) -> None:
    done = typed_offline(line, tmp_path)
    assert done.code == 1
    assert f"Did you mean this?\n\t{meant}\n" in done.err


def test_flags_are_grouped_in_the_help(tmp_path: Path) -> None:
    error_text = typed_offline("apiserver --help-all", tmp_path).out
    own, _, rest = error_text.partition("\nServing options:\n")
    assert "--data-dir" in own
    assert "--port" not in own
    assert rest.index("--port") < rest.index("\nAudit log options:\n") < rest.index("--audit-policy-file")


def test_version_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed_offline("version", tmp_path)
    assert (done.code, done.out) == (1, f"Client Version: v{__version__}\n")
    assert done.err.startswith("error: no cluster to connect to was found")


def test_an_unknown_command_gets_a_suggestion(tmp_path: Path) -> None:
    done = typed_offline("verson", tmp_path)
    assert done.code == 1
    assert done.err.startswith('error: unknown command "verson" for "setpoint"')
    assert "\tversion\n" in done.err


def test_a_missing_cluster_gives_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed_offline("api-versions", tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("error: no cluster to connect to was found")
    assert "setpoint up" in done.err


def test_an_unreachable_server_gives_a_clear_error(tmp_path: Path) -> None:
    done = typed_offline("api-versions --server http://127.0.0.1:1", tmp_path)
    assert done.code == 1
    assert done.err == "The connection to the server http://127.0.0.1:1 was refused: is it running?\n"


def test_a_plugin_is_found_by_its_longest_name(tmp_path: Path) -> None:
    import subprocess
    import sys

    for name, says in (("kubectl-greet", "short"), ("setpoint-greet-all_of", "long")):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {says} "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}

    def type_it(*words: str) -> str:
        command = [sys.executable, "-m", "setpoint", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout

    assert type_it("greet", "all-of", "--you", "x") == "long --you x\n"
    assert type_it("greet", "me") == "short me\n"


async def test_flags_may_come_before_the_command(typed: Typed) -> None:
    assert "apps/v1\n" in await typed("-n default api-versions")


async def test_warnings_as_errors(typed: Typed) -> None:
    assert (await typed("version --warnings-as-errors")).startswith("Client Version")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Failed("no"), "error: no"),
        (NotFound('pods "x" not found'), 'Error from server (NotFound): pods "x" not found'),
        (Unauthorized("Unauthorized"), "error: You must be logged in to the server (Unauthorized)"),
        (ApiError("odd"), "Error from server: odd"),
        (Several([Failed("a"), NotFound("b")]), "error: a\nError from server (NotFound): b"),
        (
            from_status(
                {
                    "code": 422,
                    "reason": "Invalid",
                    "message": "whatever",
                    "details": {"kind": "Pod", "name": "x", "causes": [{"field": "spec", "message": "Required value"}]},
                }
            ),
            'The Pod "x" is invalid: spec: Required value',
        ),
        (
            from_status(
                {
                    "code": 422,
                    "reason": "Invalid",
                    "message": "whatever",
                    "details": {
                        "kind": "Pod",
                        "name": "x",
                        "causes": [
                            {"field": "a", "message": "1"},
                            {"field": "b", "message": "2"},
                            {"field": "a", "message": "1"},
                        ],
                    },
                }
            ),
            'The Pod "x" is invalid: \n* a: 1\n* b: 2',
        ),
        (
            from_status({"code": 422, "reason": "Invalid", "message": "so"}),
            "The request is invalid: so",
        ),
    ],
)
def test_messages_and_exit_codes_of_failures(error: Exception, text: str) -> None:
    assert error_text(error) == text
