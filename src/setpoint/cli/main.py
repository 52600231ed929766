"""`setpoint`: finds the command and runs it."""

from __future__ import annotations

from importlib import import_module

import click

from setpoint import __version__

_COMMANDS = {
    "apiserver": "Run the API server alone.",
    "controller-manager": "Run the controllers alone, against any Kubernetes API server.",
    "nodes": "Run simulated nodes alone, for any Kubernetes API server.",
    "scheduler": "Run the scheduler alone, against any Kubernetes API server.",
    "up": "Run a whole cluster: API server, controllers, scheduler and simulated nodes.",
}


class _Lazy(click.Group):
    """Knows the commands' names and one line about each; imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"setpoint.cli.{name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="setpoint")
def main() -> None:
    """A complete Kubernetes-compatible control plane."""
