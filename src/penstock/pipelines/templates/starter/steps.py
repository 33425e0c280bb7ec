"""Steps of the pipeline that are easier to say in Python than in SQL."""

from collections.abc import Mapping

from pyspark.sql import DataFrame


def large_orders(unique_orders: DataFrame, parameters: Mapping[str, str]) -> DataFrame:
    """`unique_orders` is a dataset of the pipeline, `parameters` are the values of its parameters.

    A function may also ask for `spark`, the session.
    """
    is_large = unique_orders.amount >= float(parameters["large"])
    return unique_orders.where(is_large).select("order", "shop", "amount", "at")
