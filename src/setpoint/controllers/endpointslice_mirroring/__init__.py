"""Mirrors user-managed Endpoints of Services without a selector to EndpointSlices."""
