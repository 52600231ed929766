"""Kinds of the core group: one module each."""
