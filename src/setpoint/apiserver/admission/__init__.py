"""One admission plugin a file."""
