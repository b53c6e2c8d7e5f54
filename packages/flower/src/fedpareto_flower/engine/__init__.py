"""A real federation on Flower: a server and remote nodes. The only package that imports flwr."""
