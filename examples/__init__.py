"""Operators written with `setpoint.sdk`, to read and to run."""
