"""Multi-objective optimisation on plain arrays: dominance, indicators, scalarisations, preferences.

Nothing is imported here on purpose: `scalarise` needs torch, the other modules must load without it.
"""
