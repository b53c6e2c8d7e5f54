"""A real federation on Flower: a server here, nodes there. The only place that knows flwr."""
