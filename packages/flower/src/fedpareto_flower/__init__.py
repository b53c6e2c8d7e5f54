"""Federations on Flower: the engine, and servers and nodes that last."""
