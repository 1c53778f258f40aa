"""Tables protected by metric DP: files, frames, sentences, traces, DuckDB, Polars, Spark and Dask."""
