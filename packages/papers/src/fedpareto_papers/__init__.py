"""Published tables, run again: what was printed, and what comes out here."""
