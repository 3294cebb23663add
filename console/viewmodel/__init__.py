"""The console's state and its pictures, as plain values. Begin with ``console_state``.

``reducer`` folds the controller's views and the operator's actions into one immutable ``State``.
``panels`` turns the state into lines of text; ``drawing`` has the tools for it. Nothing here
imports Textual, performs I/O or reads a clock, so every picture can be tested as a function of its
inputs.
"""
