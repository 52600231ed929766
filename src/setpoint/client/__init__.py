"""The async client: how every component but the API server sees the system."""
