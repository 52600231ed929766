"""For tests of operators: the pytest plugin, virtual time, faults."""
