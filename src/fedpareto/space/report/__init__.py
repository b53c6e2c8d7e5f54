"""Reports of missions."""
