"""Interactive introduction: `demo` shows how a cluster works, and `lesson` lets users try. Both run real commands."""
