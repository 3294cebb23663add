"""The controller: decides for a whole cluster what becomes of its training tasks."""
