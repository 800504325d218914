"""Communication within layers: tensor, context and expert parallelism."""
