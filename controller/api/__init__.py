"""The controller's API: frozen views, the wire they travel on, and the server of the socket."""
