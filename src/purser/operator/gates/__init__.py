"""The order gates."""
