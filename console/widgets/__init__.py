"""Widgets that paint rows of the view model. Begin with ``painted``."""
