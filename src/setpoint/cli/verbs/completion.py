"""`completion`: print the completion script of a shell."""

from __future__ import annotations

from importlib.resources import files

from setpoint.cli.command import Command
from setpoint.cli.invocation import Invocation

_SHELLS = ("bash", "zsh", "fish")


def run(call: Invocation) -> None:
    if not call.args:
        call.usage("Shell not specified.")
    if len(call.args) > 1:
        call.usage("Too many arguments. Expected only the shell type.")
    shell = call.args[0]
    if shell not in _SHELLS:
        call.usage(f'Unsupported shell type "{shell}".')
    call.print(files("setpoint.cli").joinpath("shells", f"completion.{shell}").read_text(encoding="utf-8"), end="")


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
