"""Steps that no objective loses by."""
