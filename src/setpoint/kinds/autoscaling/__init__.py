"""Kinds of autoscaling: one module each."""
