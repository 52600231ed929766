"""The wire: HTTP/1.1, TLS, streaming, upgrades. Knows nothing of Kubernetes.

What those above may rely on:
- A handler sees whole, well-formed requests only, one at a time for each connection, in the order they were sent.
- A handler that has been called runs to its end, client or no client; only a stream is cancelled when its client goes.
- Nothing a client does, or omits to do, holds memory or a task for longer than the `Limits` say.
- After `Server.stop` no handler runs, and every stream that ended in time has ended with its last chunk.
"""
