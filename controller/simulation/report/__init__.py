"""Prints the results of a simulation: text and JSON in ``comparison_text``, a page in ``html_report``."""
