"""Engines run an algorithm's tasks."""
