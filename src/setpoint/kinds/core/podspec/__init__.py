"""The rules of pod specs and pod templates, shared by Pod and by every kind that makes pods.

A workload kind calls `default_pod_template` in `default`, `drop_disabled_template_fields` in its `prepare_*` hooks,
`validate_pod_template` in `validate` (for an update with `options=pod_template_options(old_template)`, so that what was
allowed when it was stored stays allowed) and `pod_template_warnings` for its warnings.
"""

from setpoint.kinds.core.podspec.defaults import default_pod_spec, default_pod_template
from setpoint.kinds.core.podspec.options import CREATE, CREATE_POD, PodOptions
from setpoint.kinds.core.podspec.ratcheting import drop_disabled_template_fields, pod_options, pod_template_options
from setpoint.kinds.core.podspec.resources import qos_class
from setpoint.kinds.core.podspec.spec import validate_pod_spec, validate_pod_template
from setpoint.kinds.core.podspec.warnings import pod_template_warnings

__all__ = [
    "CREATE",
    "CREATE_POD",
    "PodOptions",
    "default_pod_spec",
    "default_pod_template",
    "drop_disabled_template_fields",
    "pod_options",
    "pod_template_options",
    "pod_template_warnings",
    "qos_class",
    "validate_pod_spec",
    "validate_pod_template",
]
