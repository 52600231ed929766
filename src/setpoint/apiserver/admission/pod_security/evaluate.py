"""Which checks make up each level in each version, and their verdict on a Pod."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from setpoint.apiserver.admission.pod_security import baseline, restricted
from setpoint.apiserver.admission.pod_security.baseline import Check
from setpoint.apiserver.admission.pod_security.findings import Finding, Item
from setpoint.apiserver.admission.pod_security.policy import BASELINE, LATEST, PRIVILEGED, RESTRICTED, Standard

_NEWEST = 37


class _Rule(NamedTuple):
    level: str
    versions: tuple[tuple[int, Check], ...]
    """From which minor version on each form of the check holds."""
    instead_of: str = ""
    """The baseline rule that this one makes superfluous."""

    def at(self, minor: int) -> Check | None:
        found = None
        for since, check in self.versions:
            if since <= minor:
                found = check
        return found


# Baseline first, each level in the order of its names: the order in which findings are told.
_RULES: dict[str, _Rule] = {
    "appArmorProfile": _Rule(BASELINE, ((0, baseline.app_armor_profile),)),
    "capabilities_baseline": _Rule(BASELINE, ((0, baseline.capabilities),)),
    "hostNamespaces": _Rule(BASELINE, ((0, baseline.host_namespaces),)),
    "hostPathVolumes": _Rule(BASELINE, ((0, baseline.host_path_volumes),)),
    "hostPorts": _Rule(BASELINE, ((0, baseline.host_ports),)),
    "hostProbesAndHostLifecycle": _Rule(BASELINE, ((34, baseline.host_probes),)),
    "privileged": _Rule(BASELINE, ((0, baseline.privileged),)),
    "procMount": _Rule(
        BASELINE, ((0, baseline.proc_mount), (35, baseline.outside_user_namespaces(baseline.proc_mount)))
    ),
    "seLinuxOptions": _Rule(
        BASELINE,
        (
            (0, baseline.selinux_options(baseline.SELINUX_TYPES)),
            (31, baseline.selinux_options(baseline.SELINUX_TYPES_1_31)),
        ),
    ),
    "seccompProfile_baseline": _Rule(BASELINE, ((0, baseline.seccomp_annotations), (19, baseline.seccomp_profile))),
    "sysctls": _Rule(
        BASELINE,
        (
            (0, baseline.sysctls(baseline.SYSCTLS)),
            (27, baseline.sysctls(baseline.SYSCTLS_1_27)),
            (29, baseline.sysctls(baseline.SYSCTLS_1_29)),
            (32, baseline.sysctls(baseline.SYSCTLS_1_32)),
            (37, baseline.sysctls(baseline.SYSCTLS_1_37)),
        ),
    ),
    "windowsHostProcess": _Rule(BASELINE, ((0, baseline.windows_host_process),)),
    "allowPrivilegeEscalation": _Rule(
        RESTRICTED,
        (
            (8, restricted.allow_privilege_escalation),
            (25, restricted.except_windows(restricted.allow_privilege_escalation)),
        ),
    ),
    "capabilities_restricted": _Rule(
        RESTRICTED,
        ((22, restricted.capabilities), (25, restricted.except_windows(restricted.capabilities))),
        instead_of="capabilities_baseline",
    ),
    "procMount_restricted": _Rule(RESTRICTED, ((35, baseline.proc_mount),), instead_of="procMount"),
    "restrictedVolumes": _Rule(RESTRICTED, ((0, restricted.volumes),), instead_of="hostPathVolumes"),
    "runAsNonRoot": _Rule(
        RESTRICTED,
        ((0, restricted.run_as_non_root), (35, baseline.outside_user_namespaces(restricted.run_as_non_root))),
    ),
    "runAsUser": _Rule(
        RESTRICTED, ((23, restricted.run_as_user), (35, baseline.outside_user_namespaces(restricted.run_as_user)))
    ),
    "seccompProfile_restricted": _Rule(
        RESTRICTED,
        ((19, restricted.seccomp), (25, restricted.except_windows(restricted.seccomp))),
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
    superfluous = {_RULES[name].instead_of for name in wanted}
    return tuple(check for name, check in wanted.items() if name not in superfluous)


def evaluate(standard: Standard, meta: Item, spec: Item) -> list[Finding]:
    """What about this Pod (or Pod template) is against the standard."""
    if standard.level == PRIVILEGED:
        return []
    return [found for check in _checks(standard) if (found := check(meta, spec)) is not None]
