"""A revisioned map from key to bytes with watch. See `interface` for what every backend promises."""
