"""What an administrator says of Pod security for the whole cluster: what holds where labels say nothing, and for whom
it does not hold. A PodSecurityConfiguration, checked with upstream's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from setpoint.apiserver.admission.pod_security.policy import (
    BAD_LEVEL,
    BAD_VERSION,
    DEFAULT,
    LATEST,
    LEVELS,
    PRIVILEGED,
    Policy,
    Standard,
    minor_of,
)
from setpoint.apiserver.config_files import TEXT, FileProblem, document, many, read_config, struct
from setpoint.meta.field import Errors, aggregate_message, duplicate, invalid
from setpoint.meta.names import dns1123_label, dns1123_subdomain

Obj = dict[str, Any]


class PodSecuritySettings(NamedTuple):
    defaults: Policy = DEFAULT
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


_MODES = ("enforce", "warn", "audit")
_DEFAULTS = struct("v1.PodSecurityDefaults", **{f"{mode}{end}": TEXT for mode in _MODES for end in ("", "-version")})
_EXEMPTIONS = struct("v1.PodSecurityExemptions", usernames=many(TEXT), namespaces=many(TEXT), runtimeClasses=many(TEXT))
_CONFIGURATION = document("v1.PodSecurityConfiguration", defaults=_DEFAULTS, exemptions=_EXEMPTIONS)
_KINDS = {
    (f"pod-security.admission.config.k8s.io/{version}", "PodSecurityConfiguration"): _CONFIGURATION
    for version in ("v1", "v1beta1", "v1alpha1")
}


def read_pod_security(data: bytes | None) -> PodSecuritySettings:
    """Raises FileProblem."""
    if not data:
        return PodSecuritySettings()
    found = read_config(data, _KINDS)
    given, exemptions = found.get("defaults") or {}, found.get("exemptions") or {}
    errs: Errors = []
    standards = {}
    for mode in _MODES:
        level, version = given.get(mode) or PRIVILEGED, given.get(f"{mode}-version") or "latest"
        minor = minor_of(version)
        standards[mode] = Standard(level, LATEST if minor is None else minor)
        if level not in LEVELS:
            errs.append(invalid(f"defaults.{mode}", level, BAD_LEVEL))
        if minor is None:
            errs.append(invalid(f"defaults.{mode}-version", version, BAD_VERSION))
    namespaces, classes = exemptions.get("namespaces") or (), exemptions.get("runtimeClasses") or ()
    users = exemptions.get("usernames") or ()
    _check(namespaces, "exemptions.namespaces", dns1123_label, errs)
    _check(classes, "exemptions.runtimeClasses", dns1123_subdomain, errs)
    _check(users, "exemptions.usernames", lambda name: [] if name else ["username must not be empty"], errs)
    if errs:
        raise FileProblem(aggregate_message(errs))
    defaults = Policy(standards["enforce"], standards["audit"], standards["warn"])
    return PodSecuritySettings(defaults, frozenset(users), frozenset(namespaces), frozenset(classes))


def _check(names: Sequence[str], path: str, problems: Callable[[str], Sequence[str]], errs: Errors) -> None:
    known = set()
    for at, name in enumerate(names):
        if found := problems(name):
            errs.append(invalid(f"{path}[{at}]", name, ", ".join(found)))
        elif name in known:
            errs.append(duplicate(f"{path}[{at}]", name))
        known.add(name)
