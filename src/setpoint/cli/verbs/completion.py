"""`completion`: print the completion script of a shell."""

from __future__ import annotations

from importlib.resources import files

from setpoint.cli.command import Command
from setpoint.cli.invocation import Invocation

_SHELLS = ("bash", "zsh", "fish")


def run(invocation: Invocation) -> None:
    if not invocation.args:
        invocation.usage("Shell not specified.")
    if len(invocation.args) > 1:
        invocation.usage("Too many arguments. Expected only the shell type.")
    shell = invocation.args[0]
    if shell not in _SHELLS:
        invocation.usage(f'Unsupported shell type "{shell}".')
    invocation.print(
        files("setpoint.cli").joinpath("shells", f"completion.{shell}").read_text(encoding="utf-8"), end=""
    )


COMMAND = Command(
    "Output shell completion code for the specified shell (bash, zsh, or fish)",
    run,
    usage="SHELL",
    examples="""
    # In this shell
    source <(setpoint completion bash)
    source <(setpoint completion zsh)
    setpoint completion fish | source

    # In every shell, and for kubectl as another name of it
    echo 'source <(setpoint completion bash)' >> ~/.bashrc
    echo 'alias kubectl=setpoint; complete -o default -F __setpoint_complete kubectl' >> ~/.bashrc
    """,
    connects=False,
)
