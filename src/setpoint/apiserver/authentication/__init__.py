"""Authentication methods besides client certificates and static tokens (`filters/authenticate.py`).

Callers may rely on these guarantees:
- A method that is not configured is not loaded.
- No method logs a token or puts one into an error.
- Remote servers are called without following redirects and with a timeout; their answers are cached for a limited time
  in a bounded cache.
"""
