"""Service accounts: the default account of every namespace, and tokens stored in Secrets."""
