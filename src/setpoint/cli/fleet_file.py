"""`--fleet`: a file that says what the simulated nodes are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from setpoint.node.options import FleetOptions

fleet_option = click.option(
    "--fleet",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A YAML file: capacity, labels and zones of the nodes, rules for images, stages.",
)


def fleet_of(path: Path | None, nodes: int) -> int | FleetOptions:
    """What the file says; without one, as many plain nodes."""
    if path is None:
        return nodes
    # Here, because nobody else needs to load it.
    from setpoint.node.options import FleetProblem, read_fleet

    try:
        return read_fleet(path.read_text(encoding="utf-8"), nodes)
    except FleetProblem as problem:
        raise click.BadParameter(f"{path}: {problem}", param_hint="--fleet") from None
