"""A federation on a Ray cluster: each worker holds a part of the clients as a stack."""
