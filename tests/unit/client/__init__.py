"""Tests of penstock.client."""
