"""Container runtimes: the interface that the agent uses, and the simulated runtime."""
