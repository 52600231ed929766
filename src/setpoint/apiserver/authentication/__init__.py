"""The ways to say who one is, besides certificates and static tokens (`filters/authenticate.py`).

- None of them does anything, or is even loaded, where it is not configured.
- None of them logs a token, or puts one into an error.
- Whoever must be asked over the network is asked without following redirects, for a limited time, and its answer is
  kept for a limited time in a limited space.
"""
