"""The demo: a local cluster of SSH nodes, two training tasks, and drills that break them."""
