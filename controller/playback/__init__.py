"""Playback: the past of a run, from its journal or from a recording, served like a controller.

Begin with ``past``: what both have, views and lines by time. ``journal_past`` makes them from a
journal by replay; ``recorded_past`` reads what ``recording`` has written. ``playback_cursor`` is
the instant that is shown. ``playback_server`` serves it. ``playback_cli`` and ``record_cli`` are
the commands.
"""
