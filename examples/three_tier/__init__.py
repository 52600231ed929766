"""A guestbook of three tiers: nginx, a Python web server and PostgreSQL, all from Debian packages."""
