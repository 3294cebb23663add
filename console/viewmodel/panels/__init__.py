"""The panels of the overview, each as lines or as a table. Begin with ``nodes_panel``."""
