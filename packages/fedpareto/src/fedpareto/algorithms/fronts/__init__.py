"""Searches for whole fronts."""
