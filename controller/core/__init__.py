"""The pure core: events in, instructions out, time as an argument."""
