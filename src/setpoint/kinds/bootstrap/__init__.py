"""What every cluster starts with: objects an API server makes, and makes again when they are missing or narrowed."""
