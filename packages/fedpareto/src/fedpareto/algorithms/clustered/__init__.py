"""A model for each group of clients."""
