"""``unicron classify``: finds the faults in logs, with the catalogue of ``profiles.faults``.

Begin with ``classify_cli``, then ``log_reading``.

``classify_cli``       the options, and the ways to classify: logs, a stream, labelled texts.
``log_inputs``         which files are meant by what the user names.
``unpacking``          the lines of a file, whatever it is packed and encoded in.
``log_reading``        one log after the other, with the progress of long ones.
``findings_text``      what is printed, for people and as JSON.
``explain_catalogue``  prints the catalogue, and classifies labelled texts.
"""
