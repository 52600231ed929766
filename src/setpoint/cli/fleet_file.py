"""`--fleet`: a file that says what the simulated nodes are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Values, text

if TYPE_CHECKING:
    from setpoint.node.options import FleetOptions

FLEET = text("fleet", help="A YAML file: capacity, labels and zones of the nodes, rules for images, stages.")


def fleet_of(flags: Values) -> int | FleetOptions:
    """What the file says; without one, as many plain nodes as --nodes says. Raises Failed."""
    if not flags.fleet:
        nodes: int = flags.nodes
        return nodes
    # Here, because nobody else needs to load it.
    from setpoint.node.options import FleetProblem, read_fleet

    try:
        return read_fleet(Path(flags.fleet).read_text(encoding="utf-8"), flags.nodes)
    except OSError as error:
        raise Failed(f"--fleet {flags.fleet}: {(error.strerror or str(error)).lower()}") from None
    except (FleetProblem, UnicodeDecodeError) as problem:
        raise Failed(f"--fleet {flags.fleet}: {problem}") from None
