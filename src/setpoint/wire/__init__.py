"""The HTTP stack of servers and clients: HTTP/1.1, TLS, WebSocket, SPDY. It knows nothing of Kubernetes.

Guarantees of a `Server`:

- A handler sees whole, well-formed requests only, one at a time for each connection, in the order in which they were
  sent.
- A handler that has been called runs to its end, even if its client is gone; only a stream is cancelled then.
- Nothing that a client does, or omits to do, holds memory or a task for longer than the `Limits` say.
- After `Server.stop` no handler runs, and every stream that ended in time has ended with its last chunk.

Guarantees of a `ClientConnection`:

- A response is complete, or its reader gets `ResponseLost`; a body is read no faster than its reader takes it.
- Redirects are responses like any other. An upgrade counts only if the request offered it.
- A certificate of a server is verified before the first byte is sent (`TlsClient`).
"""
