"""The settings file that operators write (TOML), and ``unicron policy explain``.

Begin with ``policy_file``, which reads the policy; ``explain_policy`` says what the controller does
with it.
"""
