"""A session of the federated learning protocol: machines without IO, what they learn with, and what drives them."""
