"""VolumeAttachment: the intent to attach a volume to a node."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.persistentvolume import default_sources, validate_sources
from setpoint.kinds.core.podspec.claims import ACCESS_MODES
from setpoint.kinds.shared_names import text_size, validate_driver_name
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy, retain_metadata
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required, too_long
from setpoint.meta.names import dns1123_subdomain, dns1123_subdomain_caseless, in_range
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj

_NOT_INLINE = "may not be specified in the context of inline volumes"


def _validate_inline_volume(spec: Obj, path: str, errs: Errors) -> None:
    for name in ("claimRef", "capacity"):
        if spec.get(name):
            errs.append(forbidden(f"{path}.{name}", _NOT_INLINE))
    if spec.get("csi") is None:
        errs.append(required(f"{path}.csi", "has to be specified in the context of inline volumes"))
    modes = spec.get("accessModes") or []
    if not modes:
        errs.append(required(f"{path}.accessModes"))
    for mode in modes:
        if mode not in ACCESS_MODES:
            errs.append(not_supported(f"{path}.accessModes", mode, ACCESS_MODES))
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errs.append(forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes"))
    if spec.get("persistentVolumeReclaimPolicy", "Retain") != "Retain":
        text = "may only be Retain in the context of inline volumes"
        errs.append(forbidden(f"{path}.persistentVolumeReclaimPolicy", text))
    if spec.get("nodeAffinity") is not None:
        errs.append(forbidden(f"{path}.nodeAffinity", _NOT_INLINE))
    found: Errors = []
    validate_sources(spec, "", found)
    # The rules of sources expect a PersistentVolume with its spec at the top level.
    errs.extend(error._replace(field=path + error.field.removeprefix("spec")) for error in found)
    if spec.get("storageClassName"):
        errs.append(forbidden(f"{path}.storageClassName", _NOT_INLINE))
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        text = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        errs.append(forbidden(f"{path}.volumeMode", text))


_EXACTLY_ONE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_MAX_METADATA = 256 * 1024
_MAX_MESSAGE = 1024


class VolumeAttachmentStrategy(Strategy):
    returns_deleted = True
    allow_unconditional_update = False
    has_status = True

    def default(self, obj: Obj) -> None:
        inline = _source(obj).get("inlineVolumeSpec")
        if inline is not None:
            default_sources(inline)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate(obj, errs)
        _validate_attacher(_attacher(obj), errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        # Upstream declares both rules at the type and reports them last; a spec that must not change is not validated
        # further there, so that the handwritten rule reports the attacher.
        if obj.get("spec") != old.get("spec"):
            validate_driver_name(_attacher(obj), "spec.attacher", errs)
            _validate(obj, errs)
            errs.append(invalid("spec", None, IMMUTABLE))
        else:
            _validate(obj, errs)
            _validate_attacher(_attacher(obj), errs)

    columns = (
        NAME,
        Column("Attacher", lambda obj, now: _attacher(obj), format="name", description="The driver that attaches."),
        Column("PV", lambda obj, now: _source(obj).get("persistentVolumeName", ""), description="The volume."),
        Column("Node", lambda obj, now: (obj.get("spec") or {}).get("nodeName", ""), description="The node."),
        Column(
            "Attached",
            lambda obj, now: (obj.get("status") or {}).get("attached", False),
            type="boolean",
            description="Whether it is there.",
        ),
        AGE,
    )


class VolumeAttachmentStatusStrategy(StatusStrategy):
    @property
    def resets(self) -> tuple[str, ...]:
        return ("metadata", "spec")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        retain_metadata(obj, old)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.main.validate_update(obj, old, errs, ctx)


def _attacher(obj: Obj) -> str:
    name: str = (obj.get("spec") or {}).get("attacher", "")
    return name


def _source(obj: Obj) -> Obj:
    return (obj.get("spec") or {}).get("source") or {}


def _validate_attacher(name: str, errs: Errors) -> None:
    if not name:
        errs.append(required("spec.attacher"))
        return
    errs.extend(invalid("spec.attacher", name, text) for text in dns1123_subdomain_caseless(name))
    if len(name) > 63:
        errs.append(too_long("spec.attacher", 63, "characters"))


def _validate(obj: Obj, errs: Errors) -> None:
    source = _source(obj)
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        errs.append(required("spec.source", _EXACTLY_ONE))
    elif inline is not None and volume is not None:
        errs.append(forbidden("spec.source", _EXACTLY_ONE))
    elif volume == "":
        errs.append(required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"))
    elif inline is not None:
        _validate_inline_volume(inline, "spec.source.inlineVolumeSpec", errs)
    node = (obj.get("spec") or {}).get("nodeName", "")
    errs.extend(invalid("spec.nodeName", node, text) for text in dns1123_subdomain(node))
    status = obj.get("status") or {}
    if text_size(status.get("attachmentMetadata")) > _MAX_METADATA:
        errs.append(too_long("status.attachmentMetadata", _MAX_METADATA))
    for name in ("attachError", "detachError"):
        _validate_error(status.get(name), f"status.{name}", errs)
    if volume is not None:
        path = "spec.source.persistentVolumeName"
        errs.extend(invalid(path, volume, text) for text in dns1123_subdomain(volume))


def _validate_error(error: Obj | None, path: str, errs: Errors) -> None:
    if error is None:
        return
    if len(error.get("message", "").encode()) > _MAX_MESSAGE:
        errs.append(too_long(f"{path}.message", _MAX_MESSAGE))
    code = error.get("errorCode")
    if code is not None and code < 0:
        errs.append(invalid(f"{path}.errorCode", code, in_range(0, 2**31 - 1)))


STRATEGY = VolumeAttachmentStrategy()
STRATEGY.subresources = {"status": VolumeAttachmentStatusStrategy(STRATEGY)}
