"""The controller's API for consoles and scripts. Begin with ``wire``.

``wire``         the messages on the socket: requests, replies, snapshots.
``views``        frozen views of the cluster.
``projection``   makes the views from the core's state.
``view_keeper``  keeps the views of nodes until an event touches them.
``view_changes``  what differs between two views, which is all that a console is sent.
``server``       serves clients on a unix socket.
``requests``     turns requests into events of the core.
``client``       a connection for scripts and commands.
"""
