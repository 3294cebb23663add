"""What heartbeats show that the core has to know. Begin with ``heartbeat_watch``.

``heartbeat_watch``    heartbeats in, changes out: the only way from a heartbeat to the journal.
``heartbeat_changes``  what the core does about the changes.
"""
