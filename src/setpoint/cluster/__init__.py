"""The composition root: configuration, the all-in-one process, signals, shutdown."""
