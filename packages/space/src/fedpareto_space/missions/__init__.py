"""Missions: satellites are the clients, and a message travels when somebody is in sight."""
