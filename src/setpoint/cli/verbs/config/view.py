"""`config view`: print the merged kubeconfig."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Files
from setpoint.cli.kubeconfig_shape import document, flatten, minify
from setpoint.cli.output import OUTPUT, output_flags
from setpoint.cli.printing import make_printer
from setpoint.meta.gojson import indented


def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if invocation.args:
        invocation.usage(f"unexpected arguments: [{' '.join(invocation.args)}]")
    files = Files(invocation)
    printer = make_printer(output_flags(invocation)._replace(output=flags.output or ("" if flags.template else "yaml")))
    merge = flags.merge if flags.given("merge") else not files.explicit
    if not merge and not files.explicit:
        raise Failed("if merge==false a precise file must be specified")
    if flags.given("merge") and not merge and not files.default.exists():
        raise Failed(f"open {files.default}: no such file or directory")
    settings = files.shown()
    if flags.minify:
        minify(settings, flags.context)
    if flags.flatten:
        flatten(settings)
    found = document(settings, secrets=flags.flatten or flags.raw)
    # The order of the settings is fixed, which YAML output would not preserve.
    invocation.print(indented(found, ordered=False) + "\n" if flags.output == "json" else printer.print(found), end="")


COMMAND = Command(
    "Display merged kubeconfig settings or a specified kubeconfig file",
    run,
    (
        *OUTPUT,
        switch("flatten", help="Put the contents of files in the place of their paths: one file to take elsewhere."),
        switch("merge", default=True, help="Merge the full hierarchy of kubeconfig files"),
        switch("minify", help="Remove all information not used by current-context from the output"),
        switch("raw", help="Display raw byte data and sensitive data"),
    ),
    examples="""
    # What is in effect, without secrets
    setpoint config view

    # One cluster to take elsewhere, secrets and all
    setpoint config view --minify --flatten --context=staging

    # A single value
    setpoint config view -o jsonpath='{.users[?(@.name == "e2e")].user.username}'
    """,
)
