"""Protect tables with metric DP: files, data frames, sentences and traces, also in DuckDB, Polars, Spark and Dask."""
