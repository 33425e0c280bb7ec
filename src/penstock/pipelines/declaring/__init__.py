"""Pipelines written in Python: the decorators, in the words of Spark Declarative Pipelines."""
