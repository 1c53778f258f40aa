"""Protect files, data frames, sentences and traces with metric DP, with support for DuckDB, Polars, Spark and Dask."""
