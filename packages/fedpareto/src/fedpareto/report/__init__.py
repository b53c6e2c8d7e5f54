"""Runs made visible: tables, figures, a page and the terminal, all from the files of a run folder.

Nothing is imported here on purpose: matplotlib and rich are slow to load, and most callers need neither.
"""
