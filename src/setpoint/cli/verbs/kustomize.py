"""`kustomize`: build a directory with a kustomization.yaml."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.files import is_directory
from setpoint.cli.flags import array, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.kustomize import build
from setpoint.meta.body import dump_yaml

_RESTRICTORS = ("LoadRestrictionsRootOnly", "LoadRestrictionsNone")


def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if len(invocation.args) > 1:
        raise Failed("specify one path to kustomization.yaml")
    if flags.load_restrictor not in _RESTRICTORS:
        raise Failed(
            f"illegal flag value --load-restrictor {flags.load_restrictor}; legal values: [{', '.join(_RESTRICTORS)}]"
        )
    for name in ("enable-alpha-plugins", "enable-helm"):
        if getattr(flags, name.replace("-", "_")):
            raise Failed(f"--{name} is not supported: kustomizations are built without programs of others")
    folder, files = invocation.args[0] if invocation.args else ".", invocation.io.files
    confined = flags.load_restrictor == _RESTRICTORS[0]
    made = b"---\n".join(dump_yaml(obj) for obj in build(folder, files, confined=confined, warn=invocation.print_err))
    if not flags.output:
        invocation.write(made)
        return
    if is_directory(files, flags.output):
        raise Failed(f"{flags.output} is a directory; name a file to write to")
    files.write(flags.output, made)


COMMAND = Command(
    "Build a kustomization target from a directory or URL",
    run,
    (
        text("output", "o", help="If specified, write output to this path."),
        text(
            "load-restrictor",
            default=_RESTRICTORS[0],
            help="LoadRestrictionsNone: files may be outside the directory.",
            choices=_RESTRICTORS,
        ),
        switch("enable-helm", help="Not supported."),
        switch("enable-alpha-plugins", help="Not supported."),
        switch("as-current-user", hidden=True),
        switch("network", hidden=True),
        switch("helm-debug", hidden=True),
        text("network-name", default="bridge", hidden=True),
        text("helm-command", default="helm", hidden=True),
        text("helm-kube-version", hidden=True),
        array("helm-api-versions", hidden=True),
        array("env", "e", hidden=True),
        array("mount", hidden=True),
    ),
    usage="DIR [flags]",
    about="""
    Build a set of objects using a kustomization.yaml file. DIR is the directory it is in, the current one if it is left
    out. Nothing is fetched from the network, and no programs of others are run.
    """,
    examples="""
    # Of the current directory
    setpoint kustomize

    # Of another
    setpoint kustomize overlays/production
    """,
)
