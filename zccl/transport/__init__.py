"""Moves bytes between ranks and never looks inside them."""
