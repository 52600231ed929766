"""Endpoints that people write for Services without a selector, as EndpointSlices for those who only know these."""
