"""The lines with which training programs print their progress. Begin with ``progress_reader``.

Each ``*.toml`` beside the modules has the lines of one program as regular expressions.
"""
