"""`setpoint up --pace` and `--images`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flags
from setpoint.cli.fleet_file import simulation_of
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.cli.up import COMMAND, _flags
from setpoint.node.pace import FAST, INSTANT, REAL


class Terminal(BytesIO):
    def isatty(self) -> bool:
        return True


def an_invocation(line: str, *, terminal: bool = False) -> Invocation:
    out = Terminal() if terminal else BytesIO()
    io = CommandIO(stdin=BytesIO(), stdout=out, stderr=BytesIO(), home=Path("/"))
    return Invocation(io, Flags(COMMAND.flags).parse(line.split()), "setpoint up")


def test_the_default_pace_is_real_on_a_terminal_and_instant_otherwise() -> None:
    assert simulation_of(an_invocation("")).pace is INSTANT
    assert simulation_of(an_invocation("", terminal=True)).pace is REAL
    assert simulation_of(an_invocation("--pace fast")).pace is FAST
    assert simulation_of(an_invocation("--pace instant", terminal=True)).pace is INSTANT
    with pytest.raises(Failed, match="--pace slow: must be one of real, fast, instant"):
        simulation_of(an_invocation("--pace slow"))


def test_a_detached_cluster_has_the_pace_of_its_terminal() -> None:
    assert "--pace=real" in _flags(an_invocation("--nodes 2", terminal=True))
    assert _flags(an_invocation("--nodes 2 --pace fast", terminal=True)) == ["--nodes=2", "--pace=fast"]


def test_misspelled_images_are_rejected_unless_any_image_is_allowed() -> None:
    assert simulation_of(an_invocation("")).reject_misspelled_images
    assert not simulation_of(an_invocation("--images any")).reject_misspelled_images
    with pytest.raises(Failed, match="--images none: must be one of known, any"):
        simulation_of(an_invocation("--images none"))
