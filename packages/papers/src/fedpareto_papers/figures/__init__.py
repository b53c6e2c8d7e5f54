"""Figures of the papers."""
