"""Kinds of policy: one module each."""
