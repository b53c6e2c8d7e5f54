"""Fairness among clients and groups."""
