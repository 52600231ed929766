"""Certificate signing requests: approved where a node asks for its own, signed when somebody has approved, cleaned up.

Nothing here is imported before the first request comes that reads certificates: that takes time to load.
"""
