"""ValidatingAdmissionPolicyBinding: activates a validating policy and sets the actions for failures."""

from __future__ import annotations

from setpoint.kinds.admissionregistration.bindings import BindingStrategy


class ValidatingAdmissionPolicyBindingStrategy(BindingStrategy):
    mutating = False


STRATEGY = ValidatingAdmissionPolicyBindingStrategy()
