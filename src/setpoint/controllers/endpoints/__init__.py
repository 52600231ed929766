"""Endpoints: the Pods of each Service with a selector in one object, for clients that do not use EndpointSlices."""
