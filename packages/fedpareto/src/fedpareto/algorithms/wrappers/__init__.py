"""Algorithms around algorithms."""
