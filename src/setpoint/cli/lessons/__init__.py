"""Lessons on the command line: taking them in a terminal, testing them in virtual time, and playing the demo."""
