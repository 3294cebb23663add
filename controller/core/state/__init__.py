"""What the core remembers. Begin with ``cluster``, then ``task``.

Rooms of the core change these records one event at a time; ``phases`` says which changes are
possible.
"""
