"""`fedpareto space …`."""
