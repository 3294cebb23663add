"""Throughput of models on clusters, without one: the commands of ``unicron profile``."""
