"""What ImagePolicyWebhook is told: an old format without kind and version, JSON or YAML, read as upstream reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.apiserver.config_files import SWITCH, TEXT, FileProblem, struct
from setpoint.meta.body import BodyError, parse_json, parse_yaml
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.schema import Shape, Type
from setpoint.meta.times import format_duration

_SECOND, _MILLISECOND = 1_000_000_000, 1_000_000
_OFF = -1
_SECTION = "imagePolicy"
_TIME = Type(Shape.INT64, go="time.Duration")
_SETTINGS = struct(
    "imagepolicy.imagePolicyWebhookConfig",
    kubeConfigFile=TEXT, allowTTL=_TIME, denyTTL=_TIME, retryBackoff=_TIME, defaultAllow=SWITCH,
)  # fmt: skip
_DOCUMENT = struct("imagepolicy.AdmissionConfig", imagePolicy=_SETTINGS)
_NAMES = {name.lower(): name for name in (_SECTION, *_SETTINGS.fields)}


class ImagePolicySettings(NamedTuple):
    kubeconfig: str
    """The file that says where the webhook is."""
    allow_ttl: float = 300.0
    """For how many seconds a yes is remembered."""
    deny_ttl: float = 30.0
    pause: float = 0.5
    """Before the second attempt, in seconds; then longer."""
    default_allow: bool = False
    """Whether silence is consent."""


def read_image_policy(data: bytes | None) -> ImagePolicySettings:
    """Raises FileProblem."""
    if data is None:
        raise FileProblem("no config specified")
    told: dict[str, Any] = _read(data).get(_SECTION) or {}
    # In upstream's order: of several mistakes it tells the first.
    pause = _duration(told.get("retryBackoff", 0), _MILLISECOND, 1, 300 * _SECOND, 500 * _MILLISECOND)
    allow = _duration(told.get("allowTTL", 0), _SECOND, _SECOND, 1800 * _SECOND, 300 * _SECOND)
    deny = _duration(told.get("denyTTL", 0), _SECOND, _SECOND, 1800 * _SECOND, 30 * _SECOND)
    return ImagePolicySettings(told.get("kubeConfigFile", ""), allow, deny, pause, told.get("defaultAllow", False))


def _read(data: bytes) -> dict[str, Any]:
    if not data:
        raise FileProblem("EOF")
    looks_like_json, complaint, where = data.lstrip()[:1] == b"{", "", ""
    try:
        found, complaint = _json(data) if looks_like_json else (None, "")
        if not looks_like_json or complaint:
            found = parse_yaml(data)[0]
    except BodyError as error:
        raise FileProblem(complaint or f"error converting YAML to JSON: {error}") from None
    if not looks_like_json:
        where = "error unmarshaling JSON: while decoding JSON: "
    try:
        settings: dict[str, Any] = decode(_DOCUMENT, _forgiven(found))
    except DecodeError as error:
        raise FileProblem(f"{where}{error}") from None
    return settings


def _json(data: bytes) -> tuple[Any, str]:
    """What it is, or what is wrong with it; it may still be YAML."""
    try:
        return parse_json(data)[0], ""
    except BodyError as error:
        return None, "unexpected EOF" if "unexpected end" in str(error) else str(error)


def _forgiven(found: Any) -> Any:
    """Names in any case, numbers where a text is wanted, and whole numbers however they are written."""
    if not isinstance(found, dict):
        return found
    made = {}
    for given, value in found.items():
        name = _NAMES.get(given.lower(), given)
        if name == _SECTION:
            value = _forgiven(value)
        elif name == "kubeConfigFile" and isinstance(value, int | float):
            value = str(value).lower() if isinstance(value, bool) else str(value)
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        made[name] = value
    return made


def _duration(value: int, unit: int, least: int, most: int, default: int) -> float:
    """In seconds. Raises FileProblem."""
    if value == _OFF:
        return 0.0
    nanoseconds = (value * unit + 2**63) % 2**64 - 2**63 if value else default  # as 64 bits hold it
    if not least <= nanoseconds <= most:
        bounds = f"between {format_duration(least)} and {format_duration(most)}"
        raise FileProblem(f"valid value is {bounds}, got {format_duration(nanoseconds)}")
    return nanoseconds / _SECOND
