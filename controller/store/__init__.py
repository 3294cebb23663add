"""What the controller writes down: its journal of events, the event log for people, and measured tables."""
