"""Offline tuning, the top level of figure 2.4: an outer search over the parameters of a spec, run by run."""
