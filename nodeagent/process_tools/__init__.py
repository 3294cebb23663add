"""Small tools for processes, sockets and time that the whole agent uses.

Begin with ``json_streams``.
"""
