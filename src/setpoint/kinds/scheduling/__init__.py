"""Kinds of scheduling.k8s.io: one module each."""
