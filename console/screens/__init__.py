"""Whole screens. Begin with ``console_screen``, the bases; ``overview`` is the main screen."""
