"""Kinds of events.k8s.io: one module each."""
