"""The status of ValidatingAdmissionPolicies: type-checks their expressions against the matched kinds.

Findings are warnings and never change what a policy does. Kinds that are not served or only matched by wildcards are
not checked.
"""
