"""The environment of Kubernetes 1.37: which libraries expressions have, by when they were written.

A new expression may only use what the previous release knows too, so that a cluster can be rolled back; one that is
stored already may use everything.
"""

from __future__ import annotations

from functools import cache

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.environment import Environment
from setpoint.meta.cel.libraries.addresses import CIDR, IP
from setpoint.meta.cel.libraries.authorizer import AUTHZ, AUTHZ_SELECTORS
from setpoint.meta.cel.libraries.comprehensions import TWO_VARIABLE_COMPREHENSIONS
from setpoint.meta.cel.libraries.kubernetes_lists import KUBERNETES_INCLUDES, KUBERNETES_LISTS
from setpoint.meta.cel.libraries.lists import LISTS
from setpoint.meta.cel.libraries.named_formats import FORMAT
from setpoint.meta.cel.libraries.optionals import OPTIONALS
from setpoint.meta.cel.libraries.quantities import QUANTITY
from setpoint.meta.cel.libraries.regular import KUBERNETES_REGEX
from setpoint.meta.cel.libraries.semver import SEMVER
from setpoint.meta.cel.libraries.sets import SETS
from setpoint.meta.cel.libraries.standard import STANDARD
from setpoint.meta.cel.libraries.strings import STRINGS
from setpoint.meta.cel.libraries.urls import URLS

# In upstream's order, which selects the overload when several match.
_FIRST: tuple[Library, ...] = (STANDARD, URLS, KUBERNETES_REGEX)
_REST: tuple[Library, ...] = (
    AUTHZ,
    OPTIONALS,
    QUANTITY,
    STRINGS,
    SETS,
    IP,
    CIDR,
    FORMAT,
    AUTHZ_SELECTORS,
    TWO_VARIABLE_COMPREHENSIONS,
    SEMVER,
    LISTS,
)


@cache
def kubernetes_environment(stored: bool = False) -> Environment:
    """Return the environment without variables. `stored`: for expressions that are in the cluster already."""
    if stored:
        return Environment((*_FIRST, *_REST, KUBERNETES_LISTS, KUBERNETES_INCLUDES))
    return Environment((*_FIRST, KUBERNETES_LISTS, *_REST))
