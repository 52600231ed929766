"""Pure vocabulary of the Kubernetes API: no I/O, no asyncio, no clock of its own."""
