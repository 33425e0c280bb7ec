"""Tests of penstock.spark.options."""
