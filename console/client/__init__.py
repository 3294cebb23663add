"""Connections to a controller, and the demo as a child process. Nothing here imports Textual."""
