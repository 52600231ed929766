"""StorageVersionMigrations: rewrite every object of a resource in the current storage version."""
