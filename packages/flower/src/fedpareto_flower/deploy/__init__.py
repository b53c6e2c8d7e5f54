"""A federation across machines: its folders and keys, the server's process and the nodes'."""
