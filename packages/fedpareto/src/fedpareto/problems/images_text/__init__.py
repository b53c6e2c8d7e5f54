"""Image and text classification: clients as objectives, as in FedMGDA+ and FedFew."""
