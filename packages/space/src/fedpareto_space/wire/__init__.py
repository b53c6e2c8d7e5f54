"""Messages of two parties, the rows of tables 6.2 and 6.3, and how they agree on them.

Everything here is bytes and plain values: no torch, no clock, no input or output.
"""
