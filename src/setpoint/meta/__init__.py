"""Pure building blocks of the Kubernetes API: no I/O, no asyncio, no clock."""
