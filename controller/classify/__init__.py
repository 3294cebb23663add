"""``unicron classify``: finds the faults in logs, with the catalogue of ``profiles.faults``.

Begin with ``classify_cli``, then ``log_reading``. ``specimens`` classifies single
excerpts; ``explain_catalogue`` prints the catalogue.
"""
