"""The DNS server of a real node: answers for the cluster domain from memory, and forwards all other names.

Guarantees:

- Names of the cluster domain are answered as version 1.1.0 of Kubernetes' specification of DNS-based service discovery
  requires, without a request to any other program, and also while the API server is away.
- A name of the cluster domain is never forwarded. Until the first complete lists of objects have arrived, such a query
  is answered with SERVFAIL, which clients retry, and never with NXDOMAIN, which they would believe.
- Malformed messages, floods and slow clients cost a bounded amount of memory and time.
"""
