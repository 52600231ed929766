"""Image references: syntax, and whether the tag is `latest`."""

from __future__ import annotations

import re

from setpoint.meta.memoize import memoized

_DOMAIN_PART = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?(?P<path>{_PATH_PART}(?:/{_PATH_PART})*))"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER = re.compile("[a-f0-9]{64}")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}


@memoized(maxsize=4096)
def split_reference(image: str) -> tuple[str, str, str] | None:
    """Return the repository with its host, tag and digest (empty: none) of a reference that is well formed."""
    if len(image) > 2048 or _IDENTIFIER.fullmatch(image):
        return None
    first, slash, rest = image.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost" or first.lower() != first):
        image, rest = f"docker.io/library/{image}" if not slash else f"docker.io/{image}", image
    name = rest.partition(":")[0]
    if name.lower() != name:
        return None
    match = _REFERENCE.fullmatch(image)
    if match is None or len(match["path"]) > 255:
        return None
    digest = match["digest"]
    if digest:
        algorithm, _, value = digest.partition(":")
        if _DIGEST_LENGTHS.get(algorithm) != len(value) or value.lower() != value:
            return None
    return match["name"], match["tag"] or "", digest or ""


def uses_latest_tag(image: str) -> bool:
    """Return whether the reference is well formed and has the tag `latest`, explicitly or by default."""
    parts = split_reference(image)
    return parts is not None and (parts[1] == "latest" or not (parts[1] or parts[2]))


def default_pull_policy(image: str) -> str:
    return "Always" if uses_latest_tag(image) else "IfNotPresent"
