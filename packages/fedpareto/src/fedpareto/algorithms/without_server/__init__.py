"""Learning among neighbours, without a server."""
