"""`apiregistration.k8s.io`: the server of each group version."""
