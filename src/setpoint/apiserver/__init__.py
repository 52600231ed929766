"""The API server: the only way in. Nothing but `cluster` imports it."""
