"""Trust: privacy and its price, attacks to study, and the server's defences against them."""
