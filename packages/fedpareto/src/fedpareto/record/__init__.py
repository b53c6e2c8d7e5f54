"""A run's folder: who writes it and who reads it."""
