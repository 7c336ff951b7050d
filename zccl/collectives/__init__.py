"""The collectives, as users call them: one file each, and what they share."""
