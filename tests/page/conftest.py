from browser import browser, cluster, new_context, page, shared_context

__all__ = ["browser", "cluster", "new_context", "page", "shared_context"]
