"""Tests of whole labs."""

import os

IS_LONG = bool(os.environ.get("PURSER_LONG_LAB_TESTS"))
"""Whether more time may be taken than the fast suite has: more nodes, more kills, more seeds. The gate asks for it."""
