"""authorization.k8s.io: access reviews, which are answered directly and never stored."""
