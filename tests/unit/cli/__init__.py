"""Tests of penstock.cli."""
