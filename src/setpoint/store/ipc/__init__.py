"""A store that one process owns and others on the same machine replicate, over a pair of sockets each."""
