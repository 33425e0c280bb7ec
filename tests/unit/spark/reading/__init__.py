"""Tests of penstock.spark.reading."""
