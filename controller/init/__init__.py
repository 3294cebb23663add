"""``unicron init``: writes a cluster file from what already describes the nodes.

Begin with ``init_cli``. ``node_sources`` reads hostlists, Ansible, SSH and Slurm; ``file_text``
makes the text of the file, and is pure.
"""
