"""What can be done to a traced program."""
