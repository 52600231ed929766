"""Generate `--help` from the declarations of commands; the commands `help` and `options` print it."""

from __future__ import annotations

from textwrap import dedent, indent, wrap

from setpoint.cli import connection
from setpoint.cli.catalog import GROUPS, ROOT
from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, shown_default
from setpoint.cli.invocation import Invocation
from setpoint.cli.main import PROGRAM, close_names, find_command

_WIDTH = 110
_WHICH = """\
Which cluster a command acts on:
  1. the one that --kubeconfig, --context, --cluster, --server or $KUBECONFIG name;
  2. else the cluster of this directory, running or not: .setpoint here or in a parent directory;
  3. else the current context of ~/.kube/config;
  4. else, in a Pod, the cluster that it is part of."""


def help_text(command: Command, name: str, *, every_flag: bool = False) -> str:
    """Return the help of the command that was called as `name`; of many flags only the common ones, unless
    `every_flag`."""
    parts = [command.summary.rstrip(".") + "."]
    if command.about:
        parts.append(dedent(command.about).strip())
    if command.aliases:
        parts.append("Aliases:\n  " + ", ".join([name.rpartition(" ")[2], *command.aliases]))
    if command.examples:
        examples, (program, _, rest) = dedent(command.examples).strip("\n"), name.partition(" ")
        if program != PROGRAM:  # a plugin of kubectl
            examples = examples.replace(f"{PROGRAM} {rest}", name)
        parts.append("Examples:\n" + indent(examples, "  "))
    if command is ROOT:
        parts += [f"{title}:\n{_listed(commands)}" for title, commands in GROUPS.items()]
    elif command.children:
        parts.append("Commands:\n" + _listed(command.children))
    parts += _flags(command, name, every_flag)
    usage = f"  {name}" + (f" {command.usage}" if command.usage else "" if command is ROOT else " [flags]")
    parts.append(f"Usage:\n{usage}")
    if command is ROOT:
        parts.append(_WHICH)
    if command is ROOT or command.children:
        parts.append(f'Use "{name} <command> --help" for more information about a given command.')
    if command.connects and command is not ROOT:
        parts.append('Use "setpoint options" for a list of the flags that every command has.')
    return "\n\n".join(parts) + "\n"


def _flags(command: Command, name: str, every_flag: bool) -> list[str]:
    """Return the paragraphs about flags.

    A short help leaves out flags of a group unless they are common, because a command with groups has too many to read.
    """
    shown = [flag for flag in command.flags if not flag.hidden]
    grouped = [flag for flag in shown if flag.group]
    common = [flag for flag in shown if not flag.group or (flag.common and not every_flag)]
    parts = ["Options:\n" + "\n".join(map(_flag, sorted(common)))] if common else []
    if every_flag:
        for group in dict.fromkeys(flag.group for flag in grouped):
            parts.append(f"{group} options:\n" + "\n".join(_flag(flag) for flag in grouped if flag.group == group))
    elif more := len(shown) - len(common):
        parts.append(f'Use "{name} --help-all" for the other {more} flags.')
    return parts


def options_text() -> str:
    shown = [flag for flag in connection.FLAGS if not flag.hidden]
    flags = "\n".join(_flag(flag) for flag in sorted(shown))
    return f"The following options can be passed to any command that talks to a server:\n\n{flags}\n\n{_WHICH}"


def _listed(commands: object) -> str:
    assert isinstance(commands, dict)
    shown = {name: one.summary for name, one in commands.items() if not one.hidden}
    width = max(map(len, shown), default=0)
    return "\n".join(f"  {name:<{width}}   {summary}" for name, summary in shown.items())


def _flag(flag: Flag) -> str:
    names = f"  -{flag.short}, --{flag.name}" if flag.short else f"      --{flag.name}"
    if flag.takes:
        names += f" {flag.takes}" if flag.bare is None else f"[={flag.bare}]"
    default = shown_default(flag)
    typed_value = flag.help + (f" (default {default})" if default else "")
    return names + "\n" + "\n".join(wrap(typed_value, _WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10))


def print_help(invocation: Invocation) -> None:
    path = [PROGRAM]
    command, rest = find_command(list(invocation.args), path)
    if rest:
        matches = close_names(command, rest[0])
        meant = f": did you mean `setpoint help {' '.join([*path[1:], matches[0]])}`?" if matches else ""
        raise Failed(f"there is no command `{' '.join([*path, *rest])}`{meant}")
    invocation.print(help_text(command, " ".join(path)), end="")


COMMAND = Command("Help about any command", print_help, usage="[command]", connects=False)


def print_options(invocation: Invocation) -> None:
    invocation.print(options_text())


OPTIONS = Command("Print the list of flags inherited by all commands", print_options)
