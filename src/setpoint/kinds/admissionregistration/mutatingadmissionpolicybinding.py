"""MutatingAdmissionPolicyBinding: puts a mutating policy to work."""

from __future__ import annotations

from setpoint.kinds.admissionregistration.bindings import BindingStrategy


class MutatingAdmissionPolicyBindingStrategy(BindingStrategy):
    mutating = True


STRATEGY = MutatingAdmissionPolicyBindingStrategy()
