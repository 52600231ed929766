"""Service accounts: the one that every namespace has, and the tokens that people keep in Secrets."""
