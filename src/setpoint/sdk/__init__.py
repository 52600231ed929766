"""The stable face for operator authors."""
