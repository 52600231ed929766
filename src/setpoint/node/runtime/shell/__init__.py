"""A small shell that interprets the commands of simulated containers.

It supports lists, conditions, loops, variables, substitutions, redirections into simulated files, and a few dozen
common programs. Programs do not access files, processes or the network outside of the simulation."""
