"""What comes out: figures, and later runs, audits and reports."""
