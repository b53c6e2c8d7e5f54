"""The clients' machines: how fast, how well connected and when present; the time and energy that work takes them."""
