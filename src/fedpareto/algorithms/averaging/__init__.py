"""One model, averaged."""
