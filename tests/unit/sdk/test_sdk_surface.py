"""The public names of the SDK: complete and documented."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from setpoint import sdk


@pytest.mark.parametrize("name", sdk.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    found = getattr(sdk, name)
    if getattr(found, "__module__", "").startswith("setpoint.sdk"):
        assert found.__doc__
        assert not found.__doc__.startswith(f"{name}("), "as a dataclass does that has nothing to say"


def test_the_package_docstring_names_the_parts_of_an_operator() -> None:
    told = inspect.getdoc(sdk) or ""
    assert [name for name in ("Validate", "Mutate", "Convert", "Refers", "Counter", "run") if name not in told] == []


def test_importing_the_sdk_does_not_import_the_process() -> None:
    script = "import sys, setpoint.sdk; print([m for m in sys.modules if m in ('cryptography', 'uvloop', 'argparse')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
