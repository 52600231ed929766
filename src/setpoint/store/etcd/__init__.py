"""The store on etcd: several API servers share one cluster of members, and any one of them may fail."""
