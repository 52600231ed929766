"""A small shell: what the commands of simulated containers are understood with.

It knows lists, conditions, loops, variables, substitutions, redirections into simulated files, and a few dozen common
programs. Nothing it runs leaves the process: no file, no network, no other program is touched."""
