"""admissionregistration.k8s.io: who else is asked before a write, and policies that are evaluated in place."""
