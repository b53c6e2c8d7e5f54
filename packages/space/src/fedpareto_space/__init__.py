"""Federated learning over space links: a protocol that is negotiated, model formats, and links that lose data."""
