"""The SSH servers of local nodes (OpenSSH or asyncssh's), their keys, and logging in.

Begin with ``ssh_server``, the interface of both kinds of servers.
"""
