"""Who sends what to whom, and when: hand-written collectives over point-to-point messages."""
