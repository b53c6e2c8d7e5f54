"""Guo et al., "Few-for-many personalized federated learning", 2026: FedFew."""
