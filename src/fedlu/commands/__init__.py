"""The commands of `fedlu`, a module for each subject; `cli.py` puts them together."""
