"""Engines: they get an algorithm's work done."""
