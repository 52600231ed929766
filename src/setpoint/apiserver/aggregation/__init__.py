"""Aggregation: API groups that other servers answer, as APIServices say.

A request for such a group goes through our filters first: who it is, and whether they may. Then it is handed on with
the user's name in headers that only we may set; what comes back is passed on as it is, but for redirects, which are
refused. Discovery and OpenAPI of those servers are shown together with our own.
"""
