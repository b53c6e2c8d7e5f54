"""Orbits and contacts: constellations, ground stations, who sees whom when, contact plans and routes; NumPy only."""
