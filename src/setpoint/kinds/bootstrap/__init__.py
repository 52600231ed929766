"""Bootstrap objects of every cluster, which the API server creates and restores when they are missing or reduced."""
