"""`--fleet`, `--pace` and `--images`: the simulated nodes and their behaviour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Values, text
from setpoint.cli.invocation import Invocation

if TYPE_CHECKING:
    from setpoint.node.options import FleetOptions

FLEET = text("fleet", help="A YAML file: capacity, labels and zones of the nodes, rules for images, stages.")

PACE = text(
    "pace",
    choices=("real", "fast", "instant", "learning"),
    help="Speed of simulated images and containers: real, a second or two each; fast, the same with long waits cut to "
    "a tenth; learning, some seconds each, with long waits cut to a fifth; instant, no delay. By default real on a "
    "terminal, otherwise instant.",
)
IMAGES = text(
    "images",
    default="known",
    choices=("known", "any"),
    help="Which images can be pulled: known, all except apparent misspellings of well-known names; any, all.",
)


def pace_of(invocation: Invocation) -> str:
    """Return the pace of the flags, or the default. Raise Failed."""
    pace: str = invocation.flags.pace
    if pace and pace not in PACE.choices:
        raise Failed(f"--pace {pace}: must be one of {', '.join(PACE.choices)}")
    return pace or ("real" if invocation.io.out_is_terminal else "instant")


def simulation_of(invocation: Invocation) -> FleetOptions:
    """Return the fleet with its pace and images. Raise Failed."""
    from setpoint.node.options import FleetOptions
    from setpoint.node.pace import PACES

    images: str = invocation.flags.images
    if images not in IMAGES.choices:
        raise Failed(f"--images {images}: must be one of {', '.join(IMAGES.choices)}")
    fleet = fleet_of(invocation.flags)
    options = FleetOptions(fleet) if isinstance(fleet, int) else fleet
    return replace(options, pace=PACES[pace_of(invocation)], reject_misspelled_images=images == "known")


def fleet_of(flags: Values) -> int | FleetOptions:
    """Return the fleet of the file, or the number of plain nodes of --nodes. Raise Failed."""
    if not flags.fleet:
        nodes: int = flags.nodes
        return nodes
    # Imported here because no other command needs it.
    from setpoint.node.options import FleetFileError, parse_fleet_options

    try:
        return parse_fleet_options(Path(flags.fleet).read_text(encoding="utf-8"), flags.nodes)
    except OSError as error:
        raise Failed(f"--fleet {flags.fleet}: {(error.strerror or str(error)).lower()}") from None
    except (FleetFileError, UnicodeDecodeError) as problem:
        raise Failed(f"--fleet {flags.fleet}: {problem}") from None
