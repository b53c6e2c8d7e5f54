"""Runs: the loop over rounds, and what comes of it."""
