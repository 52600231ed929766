"""Function libraries of expressions, one module per library; an environment lists the libraries it has."""
