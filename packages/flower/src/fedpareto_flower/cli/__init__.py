"""The commands of servers and nodes."""
