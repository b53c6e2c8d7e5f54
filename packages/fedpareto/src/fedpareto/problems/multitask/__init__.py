"""Multi-task problems: two overlaid images, each to be classified."""
