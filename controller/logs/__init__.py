"""Logs of the long-running commands: their options and formats. Begin with ``log_options``.

Modules log with ``logging.getLogger(__name__)``. A template is a sentence, then ``: `` and the
identifiers as ``key=%s`` pairs: ``"contact lost: node=%s reason=%s"``. ``log_format`` makes JSON
keys of the pairs. Never log a key, a password or a whole address record.

Levels: a fault of the managed cluster is logged at ``info``, because the core judges it and
announces it at its own level. ``warning`` and ``error`` are for trouble of the controller itself.
"""
