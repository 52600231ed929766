"""The API described to its clients: /openapi/v2 and /openapi/v3.

Documents come from the same Types that decoding uses, so they cannot say what the server does not do. They are built
when first asked for, in JSON or in the protobuf form that kubectl prefers, and kept until a custom kind changes them.
"""
