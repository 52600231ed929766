"""ValidatingAdmissionPolicyBinding: puts a validating policy to work, and says what a failure leads to."""

from __future__ import annotations

from setpoint.kinds.admissionregistration.bindings import BindingStrategy


class ValidatingAdmissionPolicyBindingStrategy(BindingStrategy):
    mutating = False


STRATEGY = ValidatingAdmissionPolicyBindingStrategy()
