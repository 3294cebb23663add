"""The panels of the overview, each as lines or a table."""
