"""The terminal console for operators. It knows the controller's API and nothing else of it.

Begin with ``app``: events become a state, and screens show the state. ``command_registry`` lists
all commands. ``viewmodel`` turns the state into text; ``widgets`` paint that text.
"""
