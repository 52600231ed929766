"""Pod security policies: read from the labels of a namespace and from the configuration, and evaluated.

A policy names a standard, which is a level and a version, for each of the modes enforce, audit and warn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from setpoint.apiserver.admission.pod_security import checks
from setpoint.apiserver.admission.pod_security.checks import Check, Finding
from setpoint.apiserver.config_files import TEXT, FileProblem, document, many, read_config, struct
from setpoint.meta.field import Errors, FieldError, aggregate_message, duplicate, invalid
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.meta.objects import ObjView

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = (PRIVILEGED, BASELINE, RESTRICTED)
"""The levels from least to most restrictive."""
LATEST = -1

_PREFIX = "pod-security.kubernetes.io/"
_LABELS = tuple(
    _PREFIX + name for name in ("enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version")
)
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,17})")
_BAD_LEVEL = f"must be one of {', '.join(LEVELS)}"
_BAD_VERSION = 'must be "latest" or "v1.x"'
_MODES = ("enforce", "warn", "audit")
_DEFAULTS = struct("v1.PodSecurityDefaults", **{f"{mode}{end}": TEXT for mode in _MODES for end in ("", "-version")})
_EXEMPTIONS = struct("v1.PodSecurityExemptions", usernames=many(TEXT), namespaces=many(TEXT), runtimeClasses=many(TEXT))
_CONFIGURATION = document("v1.PodSecurityConfiguration", defaults=_DEFAULTS, exemptions=_EXEMPTIONS)
_KINDS = {
    (f"pod-security.admission.config.k8s.io/{version}", "PodSecurityConfiguration"): _CONFIGURATION
    for version in ("v1", "v1beta1", "v1alpha1")
}
_NEWEST = 37


class Standard(NamedTuple):
    """A level and the minor version of Kubernetes that defines it."""

    level: str
    minor: int

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"


_UNRESTRICTED = Standard(PRIVILEGED, LATEST)


class Policy(NamedTuple):
    enforce: Standard = _UNRESTRICTED
    audit: Standard = _UNRESTRICTED
    warn: Standard = _UNRESTRICTED
    errors: tuple[FieldError, ...] = ()
    """Labels that are invalid; they count as the strictest level for enforce, and as privileged otherwise."""

    @property
    def privileged(self) -> bool:
        return self.enforce.level == self.audit.level == self.warn.level == PRIVILEGED and not self.errors


_DEFAULT = Policy()


def policy_of(labels: Mapping[str, str] | None, defaults: Policy = _DEFAULT) -> Policy:
    if not labels:
        return defaults
    get = labels.get
    return _parse(tuple([get(label) for label in _LABELS]), defaults)


@lru_cache(maxsize=4096)
def _parse(values: tuple[str | None, ...], defaults: Policy) -> Policy:
    errors: list[FieldError] = []
    enforce = _standard(values[0], values[1], defaults.enforce, 0, RESTRICTED, errors)
    audit = _standard(values[2], values[3], defaults.audit, 2, PRIVILEGED, errors)
    warn = _standard(values[4], values[5], defaults.warn, 4, PRIVILEGED, errors)
    if values[4] is None and values[0] in LEVELS and LEVELS.index(enforce.level) > LEVELS.index(warn.level):
        # Without a label for warnings, the enforced level is also the warning level.
        warn = Standard(enforce.level, enforce.minor if values[5] is None else warn.minor)
    return Policy(enforce, audit, warn, tuple(errors))


def _standard(
    level: str | None, version: str | None, default: Standard, at: int, bad: str, errors: list[FieldError]
) -> Standard:
    """Parse a level and a version; `bad` is the level that stands for an invalid one."""
    if level is None:
        level = default.level
    elif level not in LEVELS:
        errors.append(_error(at, level, _BAD_LEVEL))
        level = bad
    minor: int | None = default.minor
    if version is not None:
        minor = _minor_version(version)
        if minor is None:
            errors.append(_error(at + 1, version, _BAD_VERSION))
    return Standard(level, LATEST if minor is None else minor)


def _minor_version(version: str) -> int | None:
    """Return the minor version, LATEST for "latest", or None if the text is no version."""
    if version == "latest":
        return LATEST
    match = _VERSION.fullmatch(version)
    return int(match[1]) if match is not None else None


def _error(at: int, value: str, text: str) -> FieldError:
    return invalid(f"metadata.labels[{_LABELS[at]}]", value, text)


class PodSecuritySettings(NamedTuple):
    """The PodSecurityConfiguration: the policy of namespaces without labels, and exemptions."""

    defaults: Policy = _DEFAULT
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


def read_pod_security(data: bytes | None) -> PodSecuritySettings:
    """Read and validate a PodSecurityConfiguration, with upstream's messages. Raises FileProblem."""
    if not data:
        return PodSecuritySettings()
    found = read_config(data, _KINDS)
    given, exemptions = found.get("defaults") or {}, found.get("exemptions") or {}
    errs: Errors = []
    standards = {}
    for mode in _MODES:
        level, version = given.get(mode) or PRIVILEGED, given.get(f"{mode}-version") or "latest"
        minor = _minor_version(version)
        standards[mode] = Standard(level, LATEST if minor is None else minor)
        if level not in LEVELS:
            errs.append(invalid(f"defaults.{mode}", level, _BAD_LEVEL))
        if minor is None:
            errs.append(invalid(f"defaults.{mode}-version", version, _BAD_VERSION))
    namespaces, classes = exemptions.get("namespaces") or (), exemptions.get("runtimeClasses") or ()
    users = exemptions.get("usernames") or ()
    _check_names(namespaces, "exemptions.namespaces", dns1123_label, errs)
    _check_names(classes, "exemptions.runtimeClasses", dns1123_subdomain, errs)
    _check_names(users, "exemptions.usernames", lambda name: [] if name else ["username must not be empty"], errs)
    if errs:
        raise FileProblem(aggregate_message(errs))
    defaults = Policy(standards["enforce"], standards["audit"], standards["warn"])
    return PodSecuritySettings(defaults, frozenset(users), frozenset(namespaces), frozenset(classes))


def _check_names(names: Sequence[str], path: str, problems: Callable[[str], Sequence[str]], errs: Errors) -> None:
    known = set()
    for at, name in enumerate(names):
        if found := problems(name):
            errs.append(invalid(f"{path}[{at}]", name, ", ".join(found)))
        elif name in known:
            errs.append(duplicate(f"{path}[{at}]", name))
        known.add(name)


class _Rule(NamedTuple):
    level: str
    versions: tuple[tuple[int, Check], ...]
    """The forms of the check, each with the first minor version in which it holds."""
    instead_of: str = ""
    """Name of the baseline rule that this rule includes; empty if there is none."""

    def at(self, minor: int) -> Check | None:
        found = None
        for since, check in self.versions:
            if since <= minor:
                found = check
        return found


# Findings are reported in this order: baseline first, each level sorted by name.
_RULES: dict[str, _Rule] = {
    "appArmorProfile": _Rule(BASELINE, ((0, checks.app_armor_profile),)),
    "capabilities_baseline": _Rule(BASELINE, ((0, checks.baseline_capabilities),)),
    "hostNamespaces": _Rule(BASELINE, ((0, checks.host_namespaces),)),
    "hostPathVolumes": _Rule(BASELINE, ((0, checks.host_path_volumes),)),
    "hostPorts": _Rule(BASELINE, ((0, checks.host_ports),)),
    "hostProbesAndHostLifecycle": _Rule(BASELINE, ((34, checks.host_probes),)),
    "privileged": _Rule(BASELINE, ((0, checks.privileged),)),
    "procMount": _Rule(BASELINE, ((0, checks.proc_mount), (35, checks.outside_user_namespaces(checks.proc_mount)))),
    "seLinuxOptions": _Rule(
        BASELINE,
        (
            (0, checks.selinux_options(checks.SELINUX_TYPES)),
            (31, checks.selinux_options(checks.SELINUX_TYPES_1_31)),
        ),
    ),
    "seccompProfile_baseline": _Rule(
        BASELINE, ((0, checks.seccomp_annotations), (19, checks.baseline_seccomp_profile))
    ),
    "sysctls": _Rule(
        BASELINE,
        (
            (0, checks.sysctls(checks.SYSCTLS)),
            (27, checks.sysctls(checks.SYSCTLS_1_27)),
            (29, checks.sysctls(checks.SYSCTLS_1_29)),
            (32, checks.sysctls(checks.SYSCTLS_1_32)),
            (37, checks.sysctls(checks.SYSCTLS_1_37)),
        ),
    ),
    "windowsHostProcess": _Rule(BASELINE, ((0, checks.windows_host_process),)),
    "allowPrivilegeEscalation": _Rule(
        RESTRICTED,
        (
            (8, checks.allow_privilege_escalation),
            (25, checks.except_windows(checks.allow_privilege_escalation)),
        ),
    ),
    "capabilities_restricted": _Rule(
        RESTRICTED,
        ((22, checks.restricted_capabilities), (25, checks.except_windows(checks.restricted_capabilities))),
        instead_of="capabilities_baseline",
    ),
    "procMount_restricted": _Rule(RESTRICTED, ((35, checks.proc_mount),), instead_of="procMount"),
    "restrictedVolumes": _Rule(RESTRICTED, ((0, checks.restricted_volumes),), instead_of="hostPathVolumes"),
    "runAsNonRoot": _Rule(
        RESTRICTED,
        ((0, checks.run_as_non_root), (35, checks.outside_user_namespaces(checks.run_as_non_root))),
    ),
    "runAsUser": _Rule(
        RESTRICTED, ((23, checks.run_as_user), (35, checks.outside_user_namespaces(checks.run_as_user)))
    ),
    "seccompProfile_restricted": _Rule(
        RESTRICTED,
        ((19, checks.restricted_seccomp_profile), (25, checks.except_windows(checks.restricted_seccomp_profile))),
        instead_of="seccompProfile_baseline",
    ),
}


@lru_cache(maxsize=256)
def _checks(standard: Standard) -> tuple[Check, ...]:
    minor = _NEWEST if standard.minor == LATEST else min(standard.minor, _NEWEST)
    wanted = {
        name: check
        for name, rule in _RULES.items()
        if (rule.level == BASELINE or standard.level == RESTRICTED) and (check := rule.at(minor)) is not None
    }
    included = {_RULES[name].instead_of for name in wanted}
    return tuple(check for name, check in wanted.items() if name not in included)


def evaluate(standard: Standard, meta: ObjView, spec: ObjView) -> list[Finding]:
    """Return the violations of the standard by a Pod or Pod template."""
    if standard.level == PRIVILEGED:
        return []
    return [found for check in _checks(standard) if (found := check(meta, spec)) is not None]
