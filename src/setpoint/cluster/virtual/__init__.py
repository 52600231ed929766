"""Virtual time, and clusters in virtual time: copies of a cluster that show what would happen."""
