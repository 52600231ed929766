"""The audit log: who asked for what, when, and what came of it.

What may be relied on:

- A server without an audit policy does nothing of this; a request whose rule says None costs the look at the rules.
- Credentials are never told: neither headers nor the reasons of a failed authentication hold a token. The objects that
  a rule asks for at the levels Request and RequestResponse are told as they are, Secrets and tokens in them too, as
  upstream does: that is what the levels are for.
- In the blocking modes an event is with the kernel before the request goes on. In batch mode nobody waits; what the
  bounded buffer cannot hold is dropped and counted.
"""
