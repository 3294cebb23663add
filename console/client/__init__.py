"""Connections to a controller. Nothing here imports Textual. Begin with ``source``."""
