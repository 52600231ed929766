"""What actually runs containers, or pretends to."""
