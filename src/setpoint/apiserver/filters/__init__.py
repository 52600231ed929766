"""The filters that every request passes before its handler: authentication, authorization, limits."""
