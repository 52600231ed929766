"""The face that operators are written against: every name is there, and says what it is for."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from setpoint import sdk


@pytest.mark.parametrize("name", sdk.__all__)
def test_every_name_says_what_it_is_for(name: str) -> None:
    found = getattr(sdk, name)
    if getattr(found, "__module__", "").startswith("setpoint.sdk"):
        assert found.__doc__
        assert not found.__doc__.startswith(f"{name}("), "as a dataclass does that has nothing to say"


def test_what_an_operator_can_be_made_of_is_told_at_the_door() -> None:
    told = inspect.getdoc(sdk) or ""
    assert [name for name in ("Validate", "Mutate", "Convert", "Refers", "Counter", "run") if name not in told] == []


def test_a_test_does_not_load_what_only_a_process_needs() -> None:
    script = "import sys, setpoint.sdk; print([m for m in sys.modules if m in ('cryptography', 'uvloop', 'argparse')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
