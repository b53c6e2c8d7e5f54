"""Local training over a stack of clients."""
