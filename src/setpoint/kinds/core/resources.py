"""Names of compute resources, and validation of their amounts."""

from __future__ import annotations

from setpoint.meta.caching import memoized
from setpoint.meta.field import Errors, invalid, not_supported
from setpoint.meta.names import _qualified_name
from setpoint.meta.quantity import compare, milli_value, value

NOT_NEGATIVE = "must be greater than or equal to 0"
NOT_INTEGER = "must be an integer"

HUGE_PAGES = "hugepages-"
_DEFAULT_NAMESPACE = "kubernetes.io/"
_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_STANDARD = (
    _CONTAINER
    | _COUNTED
    | {
        "storage",
        "requests.storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
POD_LEVEL = ("cpu", "hugepages-", "memory")


def is_huge_page(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def is_quota_huge_page(name: str) -> bool:
    return name.startswith((HUGE_PAGES, "requests.hugepages-"))


def is_standard(name: str) -> bool:
    return name in _STANDARD or is_quota_huge_page(name)


def _is_standard_container(name: str) -> bool:
    return name in _CONTAINER or is_huge_page(name)


def is_native(name: str) -> bool:
    """Return whether the name is in the *kubernetes.io/ namespace, explicitly or implicitly."""
    return "/" not in name or _DEFAULT_NAMESPACE in name


@memoized(maxsize=1024)
def is_extended(name: str) -> bool:
    return not is_native(name) and not name.startswith("requests.") and not _qualified_name("requests." + name)


def is_integer(name: str) -> bool:
    """Return whether amounts of the resource must be integers."""
    return name in _COUNTED or is_extended(name)


def is_overcommit_allowed(name: str) -> bool:
    return is_native(name) and not is_huge_page(name)


def is_pod_level(name: str) -> bool:
    """Return whether the resource may be requested for the pod as a whole."""
    return name in ("cpu", "memory") or is_huge_page(name)


@memoized(maxsize=1024)
def _name_errors(name: str) -> tuple[str, ...]:
    texts = _qualified_name(name)
    if not texts and "/" not in name and not is_standard(name):
        return ("must be a standard resource type or fully qualified",)
    return texts


def validate_resource_name(name: str, path: str, errs: Errors) -> None:
    for text in _name_errors(name):
        errs.append(invalid(path, name, text))


@memoized(maxsize=1024)
def container_name_errors(name: str) -> tuple[str, ...]:
    """Return the errors of a resource name in a container."""
    texts = _name_errors(name)
    if "/" not in name:
        if not _is_standard_container(name):
            return (*texts, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        return (*texts, "doesn't follow extended resource name standard")
    return texts


def validate_container_resource_name(name: str, path: str, errs: Errors) -> None:
    for text in container_name_errors(name):
        errs.append(invalid(path, name, text))


def validate_pod_resource_name(name: str, path: str, errs: Errors) -> None:
    texts = _name_errors(name)
    for text in texts:
        errs.append(invalid(path, name, text))
    if not texts and not is_pod_level(name):
        errs.append(not_supported(path, name, POD_LEVEL))


@memoized(maxsize=16384)
def amount_errors(name: str, amount: str) -> tuple[str, ...]:
    """Return the errors of this amount of this resource."""
    texts = []
    if compare(amount, "0") < 0:
        texts.append(NOT_NEGATIVE)
    if is_integer(name) and milli_value(amount) % 1000:
        texts.append(NOT_INTEGER)
    return tuple(texts)


def validate_resource_amount(name: str, amount: str, path: str, errs: Errors) -> None:
    for text in amount_errors(name, amount):
        errs.append(invalid(path, amount, text))


@memoized(maxsize=1024)
def is_divisible_by_page(name: str, amount: str) -> bool:
    """Return whether an amount of huge pages is a multiple of the page size, 2Mi for `hugepages-2Mi`."""
    try:
        page = name.removeprefix(HUGE_PAGES)
        size = value(page)
        if size <= 0 or milli_value(page) % 1000:
            return False
    except ValueError:
        return False
    return value(amount) % size == 0
