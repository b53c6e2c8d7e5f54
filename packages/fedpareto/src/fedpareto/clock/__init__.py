"""The clients' machines: how fast, how connected, when present; what time and energy work takes; and who is asked."""
