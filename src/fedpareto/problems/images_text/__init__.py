"""Images and texts to tell: clients as objectives, as in FedMGDA+ and FedFew."""
