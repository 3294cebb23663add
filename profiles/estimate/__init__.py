"""T(t, x) from first principles: how fast a cluster trains a model in a layout, and the best layout."""
