"""What instructions were made from, as debug information says, and what they did, counted."""
