"""Kinds of coordination.k8s.io: one module each."""
