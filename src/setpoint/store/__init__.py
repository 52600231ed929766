"""A revisioned map from key to bytes with watch. `interface` states the contract of every backend."""
