"""Results of a simulation: ``comparison_text`` prints text and JSON, ``html_report`` a page.

Begin with ``comparison_text``.
"""
