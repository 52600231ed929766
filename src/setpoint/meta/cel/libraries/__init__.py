"""Functions that expressions may call, one module per library; an environment says which of them it has."""
