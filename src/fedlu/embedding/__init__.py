"""Scores, and what is done with them. Imports nothing of a federation."""
