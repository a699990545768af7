"""`fedlu explore`: a page and an API to look into a run, on this machine."""
