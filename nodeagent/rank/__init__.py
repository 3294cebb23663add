"""The half of a node that lives in training processes: the template, its ranks, their training."""
