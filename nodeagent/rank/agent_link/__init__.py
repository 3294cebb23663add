"""The connections of a rank to its node's agent: reports, requests, rendezvous, and drills.

Begin with ``control_link``. ``dependencies`` is the part of it that training sees.
"""
