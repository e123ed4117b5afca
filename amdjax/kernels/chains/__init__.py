"""Products and what lies between them as one kernel."""
