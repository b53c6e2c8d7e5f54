"""Experiments: a spec becomes a run, a run becomes a folder."""
