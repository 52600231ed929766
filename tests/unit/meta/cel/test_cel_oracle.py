"""Random expressions, evaluated here and by an independent implementation (the C++ one, through its Python binding).

Known differences, which are the reference's: a constant that cannot be converted is refused before anything runs.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from expression_maker import VALUES, VARIABLES, ExpressionMaker

from setpoint.meta.cel import CelError, kubernetes_environment
from setpoint.meta.cel.declarations import parse_type

cel = pytest.importorskip("cel_expr_python.cel")


THEIR_TYPES = {
    "int": cel.Type.INT,
    "string": cel.Type.STRING,
    "bool": cel.Type.BOOL,
    "double": cel.Type.DOUBLE,
    "list(int)": cel.Type.List(cel.Type.INT),
    "list(string)": cel.Type.List(cel.Type.STRING),
    "map(string, int)": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
}
THEIRS = cel.NewEnv(variables={name: THEIR_TYPES[kind] for name, kind in VARIABLES.items()})
OURS = kubernetes_environment().extended({name: parse_type(kind) for name, kind in VARIABLES.items()})


def _their_outcome(text: str) -> tuple[str, Any]:
    try:
        result = THEIRS.compile(text).eval(data=VALUES)
    except Exception as error:  # whatever the binding raises means: no value
        return "error", str(error)
    if "ERROR" in str(result.type()):
        return "error", str(result.value())
    return "value", result.plain_value()


def _our_outcome(text: str) -> tuple[str, Any]:
    outcome = OURS.compile(text).evaluate(VALUES)
    return ("error", outcome.error) if outcome.error is not None else ("value", outcome.value)


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions_agree(seed: int) -> None:
    maker = ExpressionMaker(random.Random(seed))
    compared = 0
    for _ in range(60):
        text = maker.make()
        try:
            ours = _our_outcome(text)
        except CelError:
            continue
        theirs = _their_outcome(text)
        assert ours[0] == theirs[0], (text, ours, theirs)
        if ours[0] == "value":
            same = ours[1] == theirs[1] or (ours[1] != ours[1] and theirs[1] != theirs[1])
            assert same, (text, ours, theirs)
        compared += 1
    assert compared > 40
