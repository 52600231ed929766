"""StorageVersionMigrations: every object of a resource is written once more, in the version that is stored today."""
