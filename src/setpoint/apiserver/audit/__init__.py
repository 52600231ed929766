"""The audit log: who requested what, when, and with which result.

Callers may rely on these guarantees:
- A server without an audit policy does none of this; a request whose rule has the level None costs only the evaluation
  of the rules.
- Credentials are never logged: neither headers nor the reasons of a failed authentication contain a token. Objects are
  logged as they are at the levels Request and RequestResponse, including Secrets and tokens in them, as upstream does.
- In the blocking modes an event is written to the kernel before the request proceeds. In batch mode requests do not
  wait; events that exceed the bounded buffer are dropped and counted.
"""
