"""Clients, a server, and what they say to each other."""
