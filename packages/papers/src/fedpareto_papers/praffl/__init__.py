"""Ye et al., "PraFFL: a preference-aware scheme in fair federated learning", 2024."""
