"""Notifies people: of what, over which channels, and when. Begin with ``alert``.

``alert``             what a person should know.
``present_alerts``    finds the alerts of a cluster in its view.
``alert_gate``        decides which of them a channel gets, and when.
``message_texts``     puts them into words.
``notify_tables``     reads the tables ``[[notify]]``, which describe the channels.
``sending``           sends a message by apprise, in a process of its own.
``notifier``          serves all channels beside a controller, and delays nothing.
"""
