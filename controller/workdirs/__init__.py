"""The folders of tasks that are copied to nodes.

Begin with ``workdir_version``: what belongs to a folder. ``workdir_store`` keeps versions in the
run directory, so that a later start still finds the one that its program was read with.
"""
