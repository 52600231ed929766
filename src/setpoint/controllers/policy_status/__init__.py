"""The status of ValidatingAdmissionPolicies: whether their expressions suit the kinds that they are for.

What is found are warnings: they never change what a policy does. Of kinds that nobody serves, or that the policy does
not name (wildcards), nothing is said.
"""
