"""Recovery benchmark: one training, several ways to survive a fault, measured alike.

``plan`` says what is trained and when it breaks, ``training`` is the training for the alternatives,
``variants`` are the alternatives and their settings, ``nodes`` what a node is and how it is lost,
``campaign`` runs them, ``report`` tells.
The modules outside ``training`` and ``plot`` need nothing but Python.
"""
