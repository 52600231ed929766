"""The additions of the command line to the page: `web` may not import them."""

from __future__ import annotations

from setpoint.cli.page_terminal.conversation import PageTerminals
from setpoint.system import RandomIds
from setpoint.web import workspace
from setpoint.web.server import PageExtensions
from setpoint.web.workspace import Workspaces


def page_extensions() -> PageExtensions:
    return PageExtensions(
        conversations={"terminal": PageTerminals(RandomIds().suffix).run},
        parts={workspace.PART: Workspaces()},
    )
