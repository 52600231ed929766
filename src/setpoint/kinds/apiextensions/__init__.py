"""`apiextensions.k8s.io`: kinds that users define, and the rules for their schemas."""

from setpoint.meta.objects import ObjView

Schema = ObjView
"""A JSON schema of a CustomResourceDefinition, or a part of one."""
