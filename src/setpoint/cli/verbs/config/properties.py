"""`config set` and `config unset`: change single properties by their path."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Files
from setpoint.cli.kubeconfig_shape import set_property, unset_property
from setpoint.cli.verbs.config.contexts import arguments
from setpoint.meta.goformat import quote


def set_one(invocation: Invocation) -> None:
    path, value = arguments(invocation, 2)
    if not value:
        raise Failed("you cannot use set to unset a property")
    if not path:
        raise Failed("you must specify a property")
    with Files(invocation).changing(relative=False) as settings:
        set_property(settings, path, value, raw_bytes=invocation.flags.set_raw_bytes)
    invocation.print(f"Property {quote(path)} set.")


def unset_one(invocation: Invocation) -> None:
    (path,) = arguments(invocation, 1)
    if not path:
        raise Failed("you must specify a property")
    with Files(invocation).changing(relative=False) as settings:
        unset_property(settings, path)
    invocation.print(f"Property {quote(path)} unset.")


SET = Command(
    "Set an individual value in a kubeconfig file",
    set_one,
    (switch("set-raw-bytes", help="For settings that are bytes: the value is taken as it is, not as base64."),),
    usage="PROPERTY_NAME PROPERTY_VALUE",
    about="A path is made of a section, the name of an entry (which may have dots) and the name of a setting.",
    examples="""
    setpoint config set clusters.staging.server https://10.0.0.1:6443
    setpoint config set contexts.staging.namespace shop
    """,
)
UNSET = Command(
    "Unset an individual value in a kubeconfig file",
    unset_one,
    usage="PROPERTY_NAME",
    examples="""
    setpoint config unset current-context
    setpoint config unset users.me.token
    """,
)
