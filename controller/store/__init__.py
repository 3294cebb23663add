"""What the controller writes down: its journal of events, and the event log for people."""
