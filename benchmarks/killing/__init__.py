"""Killing ranks of a real cluster at random, and what its event log tells of the recovery."""
