"""The settings file that operators write (TOML), and ``unicron policy explain``.

Begin with ``settings_file``, which reads policy and failure domains; ``explain_policy`` says what
the controller does with them.
"""
