"""The catalogue of faults: wordings in logs, their meaning, and the line that names the cause.

Begin with ``status`` (the kinds of faults) and ``entry`` (one wording). ``catalogue`` reads the
data files, ``excerpt`` classifies a text, ``stream`` a whole log, and ``verdict`` holds the rules.
"""
