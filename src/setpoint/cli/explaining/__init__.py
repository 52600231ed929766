"""Explain the fields of a kind from the server's OpenAPI documents, in kubectl's layout."""
