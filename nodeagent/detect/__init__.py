"""What readings of a node's probes mean: pure folds, readings and the time in, findings out."""
