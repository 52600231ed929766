"""Kinds of discovery.k8s.io: one module each."""
