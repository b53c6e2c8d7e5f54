"""Multi-task problems: two images laid over each other, and each of them to be told."""
