"""The drill matrix: every drill against a running cluster, what was expected and what was observed."""
