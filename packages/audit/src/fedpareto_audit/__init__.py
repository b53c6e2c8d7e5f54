"""Privacy audits: what a curious server learns."""
