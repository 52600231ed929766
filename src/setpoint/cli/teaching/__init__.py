"""What shows and teaches how a cluster works: `demo` plays, `lesson` lets people play. Both type real commands."""
