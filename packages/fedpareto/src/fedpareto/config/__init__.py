"""The ground floor: what values may be, and how they are read. Nothing here needs torch."""
