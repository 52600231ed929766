"""Setpoint: a complete Kubernetes-compatible control plane as a Python package."""

__version__ = "0.2.0"
