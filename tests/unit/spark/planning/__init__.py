"""Tests of penstock.spark.planning."""
