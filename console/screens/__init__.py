"""Whole screens: which widgets are shown where."""
