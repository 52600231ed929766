"""apiregistration.k8s.io: which server answers for which group version."""
