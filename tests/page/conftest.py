from browser import browser, cluster, new_context, page

__all__ = ["browser", "cluster", "new_context", "page"]
