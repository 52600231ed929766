"""The additions of the command line to the page: `web` may not import them."""

from __future__ import annotations

from setpoint.web import workspace
from setpoint.web.server import PageExtensions
from setpoint.web.workspace import Workspaces


def page_extensions() -> PageExtensions:
    return PageExtensions(parts={workspace.PART: Workspaces()})
