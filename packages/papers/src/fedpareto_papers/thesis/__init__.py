"""Chapters 3 to 5 of L. M. Hartmann's thesis, "Multi-Objective Learning in Federation", 2026."""
