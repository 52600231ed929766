"""What every request passes before its handler: who, may they, not too many."""
