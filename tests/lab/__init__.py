"""Tests of whole labs."""
