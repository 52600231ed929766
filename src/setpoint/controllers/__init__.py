"""The built-in controllers, one module per kind."""
