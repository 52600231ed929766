"""OpenAPI documents: /openapi/v2 and /openapi/v3.

Documents are generated from the same Types that decode requests, so they describe what the server does. They are built
when first requested, as JSON or in the protobuf form that kubectl prefers, and cached until a custom kind changes them.
"""
