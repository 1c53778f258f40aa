"""Protect files, data frames, sentences and traces with metric DP, also in DuckDB, Polars, Spark and Dask."""
