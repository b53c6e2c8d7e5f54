"""Hu et al., "Federated learning meets multi-objective optimization", 2022: FedMGDA+."""
