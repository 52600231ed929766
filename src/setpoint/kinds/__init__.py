"""The built-in kinds: defaults, validation, what an update may change, table columns. Pure functions over dicts."""
