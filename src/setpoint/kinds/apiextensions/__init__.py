"""apiextensions.k8s.io: kinds that users define, and the rules for their schemas."""
