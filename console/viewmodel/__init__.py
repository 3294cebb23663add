"""What the console shows, as plain values.

Controller views and link events are folded into one immutable ``State`` (``state``); the other
modules turn that state into lines of toned text for a given width. Nothing here imports Textual,
performs I/O or reads a clock, so every picture can be tested as a function of its inputs.
"""
